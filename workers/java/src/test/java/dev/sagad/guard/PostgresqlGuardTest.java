package dev.sagad.guard;

/** On PostgreSQL. */
class PostgresqlGuardTest extends GuardTest {

  PostgresqlGuardTest() {
    super(Guard.postgresql());
  }

  @Override
  Databases start() throws Exception {
    return Databases.postgresql();
  }
}
