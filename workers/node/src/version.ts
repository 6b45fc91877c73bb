/** The version of this package, said to the orchestrator in each Hello. */
export const VERSION = '0.1.0';
