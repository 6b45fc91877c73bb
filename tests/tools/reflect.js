// Asks a server by reflection and calls it with what it said: reflect.js ADDRESS PROTO
// A client of @grpc/grpc-js that has no protos but reflection's own (the file PROTO). Prints one line;
// exits 1 where something is not as it must be.
'use strict';

const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const LIMIT_MS = 20000;
const [address, proto] = process.argv.slice(2);
const credentials = grpc.credentials.createInsecure();

function deadline() {
  return { deadline: Date.now() + LIMIT_MS };
}

// One question on a stream of its own.
function ask(client, request) {
  return new Promise((resolve, reject) => {
    const stream = client.ServerReflectionInfo(deadline());
    stream.on('error', reject);
    stream.on('data', (response) => {
      stream.end();
      if (response.errorResponse) reject(new Error(response.errorResponse.errorMessage));
      else resolve(response);
    });
    stream.write(request);
  });
}

// A FileDescriptorSet is its files, each with tag 1 and its length before it.
function setOf(files) {
  const parts = [];
  for (const file of files) {
    const head = [0x0a];
    let size = file.length;
    for (; size > 127; size >>>= 7) head.push((size & 127) | 128);
    head.push(size);
    parts.push(Buffer.from(head), file);
  }
  return Buffer.concat(parts);
}

async function main() {
  const published = grpc.loadPackageDefinition(loader.loadSync(proto)).grpc.reflection;
  const { ServerReflection } = Object.values(published)[0];
  const client = new ServerReflection(address, credentials);
  const { listServicesResponse } = await ask(client, { listServices: '' });
  const names = listServicesResponse.service.map((service) => service.name);
  const { fileDescriptorResponse } = await ask(client, {
    fileContainingSymbol: 'saga.v1.OperatorService',
  });
  const described = grpc.loadPackageDefinition(
    loader.loadFileDescriptorSetFromBuffer(setOf(fileDescriptorResponse.fileDescriptorProto)),
  );
  const operator = new described.saga.v1.OperatorService(address, credentials);
  const status = await new Promise((resolve, reject) => {
    operator.GetStatus({}, deadline(), (err, reply) => (err ? reject(err) : resolve(reply)));
  });
  if (!status.node) throw new Error('GetStatus says no node');
  console.log(`${Object.keys(published)[0]}: ${names.length} services, called node ${status.node}`);
  operator.close();
  client.close();
}

main().catch((err) => {
  console.error(err.message);
  process.exitCode = 1;
});
