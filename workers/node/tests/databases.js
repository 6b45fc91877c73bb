/**
 * A PostgreSQL and a MariaDB of the tests' own, thrown away at their end. They do not run as root: then
 * another user runs them.
 *   SAGAD_PG_BIN, SAGAD_MARIADB_BIN   where their programs are (default: Debian's places)
 */
'use strict';

const { execFileSync, spawn } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');

const LIMIT_MS = 60_000;
const ROOT = path.join(__dirname, '..', '..', '..');
const GUARD = path.join(ROOT, 'sql', 'guard');

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** The first of these users that is there, where this process is root. */
function userOf(names) {
  if (process.geteuid() !== 0) {
    return {};
  }
  for (const name of names) {
    try {
      const [uid, gid] = ['-u', '-g'].map((what) => Number(execFileSync('id', [what, name], { stdio: 'pipe' })));
      return { uid, gid };
    } catch {
      continue;
    }
  }
  throw new Error(`no system user of ${names} to run it as`);
}

/** A process with a directory that belongs to it. */
class Server {
  #process;
  #stopSignal;
  #options;

  constructor(users, stopSignal) {
    this.directory = fs.mkdtempSync(path.join(os.tmpdir(), 'sagad-node-'));
    this.#stopSignal = stopSignal;
    const user = userOf(users);
    if (user.uid !== undefined) {
      fs.chownSync(this.directory, user.uid, user.gid);
    }
    this.#options = { ...user, cwd: this.directory, env: { ...process.env, TMPDIR: this.directory } };
  }

  run(program, args, input) {
    return execFileSync(program, args, { ...this.#options, input, stdio: 'pipe', timeout: LIMIT_MS });
  }

  async start(program, args, answers) {
    const log = path.join(this.directory, 'log');
    const file = fs.openSync(log, 'a');
    this.#process = spawn(program, args, { ...this.#options, stdio: ['ignore', file, file] });
    fs.closeSync(file);
    const until = performance.now() + LIMIT_MS;
    while (!(await answers())) {
      if (this.#process.exitCode !== null || performance.now() > until) {
        throw new Error(`the database did not start: ${fs.readFileSync(log, 'utf8').slice(-2000)}`);
      }
      await sleep(50);
    }
  }

  async stop() {
    if (this.#process && this.#process.exitCode === null) {
      const ended = new Promise((resolve) => this.#process.once('exit', resolve));
      this.#process.kill(this.#stopSignal);
      await ended;
    }
    fs.rmSync(this.directory, { recursive: true });
  }
}

/** `options`: where a client of pg connects to. */
async function startPostgresql() {
  const bin = process.env.SAGAD_PG_BIN || '/usr/lib/postgresql/15/bin';
  const server = new Server(['postgres'], 'SIGQUIT');
  const { directory } = server;
  const data = path.join(directory, 'data');
  const settings = ['-U', 'postgres', '-E', 'UTF8', '--locale=C.UTF-8', '--auth=trust', '--no-sync'];
  server.run(path.join(bin, 'initdb'), ['-D', data, ...settings]);
  const args = ['-D', data, '-k', directory, '-c', 'listen_addresses=', '-c', 'shared_buffers=64MB'];
  await server.start(path.join(bin, 'postgres'), args, async () => {
    try {
      server.run(path.join(bin, 'pg_isready'), ['-q', '-h', directory]);
      return true;
    } catch {
      return false;
    }
  });
  server.options = { host: directory, user: 'postgres', database: 'postgres' };
  server.load = (file) => {
    const options = ['-X', '-q', '-h', directory, '-U', 'postgres', '-v', 'ON_ERROR_STOP=1', '-f', '-'];
    server.run(path.join(bin, 'psql'), options, fs.readFileSync(file));
  };
  server.load(path.join(GUARD, 'postgresql.sql'));
  return server;
}

/** `options`: where a connection of mysql2 goes to. */
async function startMariadb() {
  const bin = process.env.SAGAD_MARIADB_BIN || '/usr/sbin';
  const server = new Server(['mysql', 'nobody'], 'SIGTERM');
  const socket = path.join(server.directory, 'sock');
  const data = `--datadir=${path.join(server.directory, 'data')}`;
  const settings = ['--skip-name-resolve', '--innodb-log-file-size=16M', '--innodb-use-native-aio=0'];
  const install = ['--no-defaults', data, '--auth-root-authentication-method=normal', '--skip-test-db', ...settings];
  server.run('mariadb-install-db', install);
  const client = ['--no-defaults', '-u', 'root', '--socket', socket];
  const args = ['--no-defaults', data, `--socket=${socket}`, '--skip-networking', ...settings];
  const more = ['--innodb-buffer-pool-size=64M', '--character-set-server=utf8mb4'];
  await server.start(path.join(bin, 'mariadbd'), [...args, ...more], async () => {
    try {
      server.run('mariadb', [...client, '-e', 'DO 0']);
      return true;
    } catch {
      return false;
    }
  });
  const guard = fs.readFileSync(path.join(GUARD, 'mysql.sql'));
  server.run('mariadb', client, `CREATE DATABASE shop; USE shop;\n${guard}`);
  server.options = { socketPath: socket, user: 'root', database: 'shop' };
  return server;
}

module.exports = { startMariadb, startPostgresql };
