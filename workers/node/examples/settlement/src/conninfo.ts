/** A conninfo of libpq for pg: "host=... user=... dbname=..."; a host with a slash is a socket's folder. */

import type { PoolConfig } from 'pg';

type Setting = (value: string) => PoolConfig;

const SETTINGS: Readonly<Record<string, Setting>> = {
  host: (host) => ({ host }),
  port: (port) => ({ port: Number(port) }),
  user: (user) => ({ user }),
  password: (password) => ({ password }),
  dbname: (database) => ({ database }),
  connect_timeout: (seconds) => ({ connectionTimeoutMillis: Number(seconds) * 1000 }),
};

export function poolConfigOf(conninfo: string): PoolConfig {
  const config: PoolConfig = {};
  for (const pair of conninfo.trim().split(/\s+/)) {
    const [, name = '', value = ''] = /^([a-z_]+)=(.*)$/.exec(pair) ?? [];
    const setting = SETTINGS[name];
    if (!setting) {
      throw new Error(`--bank: ${pair} is none of ${Object.keys(SETTINGS).join(', ')}`);
    }
    Object.assign(config, setting(value));
  }
  return config;
}
