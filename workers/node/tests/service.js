/** A SagaService on a loopback port that answers as the test says. */
'use strict';

const { create, fromBinary, toBinary } = require('@bufbuild/protobuf');
const grpc = require('@grpc/grpc-js');
const { SagaService } = require('sagad/gen/saga/v1/saga_pb');

class Service {
  requests = [];
  /** By method, "getSaga": a message to answer, or a function of the call. */
  answers = {};
  #server = new grpc.Server();

  static async start(address = '127.0.0.1:0') {
    const service = new Service();
    await service.#listen(address);
    return service;
  }

  async #listen(address) {
    const definition = {};
    const implementation = {};
    for (const method of SagaService.methods) {
      definition[method.localName] = {
        path: `/${SagaService.typeName}/${method.name}`,
        requestStream: false,
        responseStream: method.methodKind === 'server_streaming',
        requestDeserialize: (bytes) => fromBinary(method.input, bytes),
        responseSerialize: (message) => Buffer.from(toBinary(method.output, create(method.output, message))),
      };
      implementation[method.localName] = (call, callback) => this.#answer(method.localName, call, callback);
    }
    this.#server.addService(definition, implementation);
    const port = await new Promise((resolve, reject) => {
      this.#server.bindAsync(address, grpc.ServerCredentials.createInsecure(), (error, port) =>
        error ? reject(error) : resolve(port),
      );
    });
    this.address = `127.0.0.1:${port}`;
  }

  #answer(name, call, callback) {
    this.requests.push(call.request);
    const answer = this.answers[name];
    if (typeof answer === 'function') {
      answer(call, callback);
    } else {
      callback(null, answer);
    }
  }

  stop() {
    this.#server.forceShutdown();
  }
}

/** An error as a server gives it. */
function refusal(code, details, status) {
  const metadata = new grpc.Metadata();
  if (status) {
    metadata.set('grpc-status-details-bin', Buffer.from(status));
  }
  return { code, details, metadata };
}

module.exports = { Service, refusal };
