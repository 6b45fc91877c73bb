/**
 * Messages of the user's: whichever generator made the classes, this is all that is asked of them.
 */

import {
  create,
  type DescMessage,
  fromBinary,
  type MessageInitShape,
  type MessageShape,
  toBinary,
} from '@bufbuild/protobuf';

/** How a message becomes bytes, and back. `name`: its full name; '': not known, and not checked. */
export interface Codec<Out, In = Out> {
  readonly name: string;
  decode(bytes: Uint8Array): Out;
  encode(message: In): Uint8Array;
}

/** A class or object of protobufjs (pbjs, or a reflected Type) or of ts-proto. */
export interface EncodingType<T> {
  decode(bytes: Uint8Array): T;
  // A method, so that classes that take a part of T (protobufjs' interfaces) fit, too.
  encode(message: T): { finish(): Uint8Array };
}

/** A class of google-protobuf. */
export interface SerializingType<T extends { serializeBinary(): Uint8Array }> {
  new (): T;
  deserializeBinary(bytes: Uint8Array): T;
}

/** What is taken for a type of messages: a schema of @bufbuild/protobuf, a class, or a codec. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type MessageType = DescMessage | EncodingType<any> | SerializingType<any> | Codec<any, any>;

/** What bytes of that type are read as. */
export type MessageOf<T> = T extends DescMessage
  ? MessageShape<T>
  : T extends { deserializeBinary(bytes: Uint8Array): infer M }
    ? M
    : T extends { decode(bytes: Uint8Array): infer M }
      ? M
      : never;

/** What may be given for a message of that type. */
export type MessageInitOf<T> = T extends DescMessage
  ? MessageInitShape<T>
  : T extends Codec<infer _Out, infer In>
    ? In
    : MessageOf<T>;

/** The codec of a type. TypeError: it is none. */
export function codecOf<T extends MessageType>(type: T): Codec<MessageOf<T>, MessageInitOf<T>> {
  return anyCodec(type) as Codec<MessageOf<T>, MessageInitOf<T>>;
}

function anyCodec(type: MessageType): Codec<unknown, never> {
  if (isSchema(type)) {
    return {
      name: type.typeName,
      decode: (bytes) => fromBinary(type, bytes),
      encode: (message) => toBinary(type, create(type, message)),
    };
  }
  if ('deserializeBinary' in type && typeof type.deserializeBinary === 'function') {
    return {
      name: '', // its classes do not know it
      decode: (bytes) => type.deserializeBinary(bytes),
      encode: (message: { serializeBinary(): Uint8Array }) => message.serializeBinary(),
    };
  }
  if ('encode' in type && 'decode' in type) {
    return {
      name: nameOf(type),
      decode: (bytes) => type.decode(bytes),
      encode: (message) => {
        const encoded = type.encode(message) as Uint8Array | { finish(): Uint8Array };
        return 'finish' in encoded ? encoded.finish() : encoded;
      },
    };
  }
  throw new TypeError(
    'a type of messages is a schema of @bufbuild/protobuf, a class of protobufjs or google-protobuf, or a codec',
  );
}

function isSchema(type: MessageType): type is DescMessage {
  return 'kind' in type && type.kind === 'message' && 'typeName' in type;
}

/** Full name of a codec, or of a type of protobufjs or ts-proto; '' where it does not tell. */
function nameOf(type: object): string {
  const said = type as { fullName?: unknown; getTypeUrl?: unknown; $type?: unknown; name?: unknown };
  if (typeof said.fullName === 'string') {
    return said.fullName.replace(/^\./, '');
  }
  if (typeof said.getTypeUrl === 'function') {
    const url: unknown = said.getTypeUrl.call(type);
    return typeof url === 'string' ? url.slice(url.lastIndexOf('/') + 1) : '';
  }
  const name = said.$type ?? (typeof type === 'function' ? '' : said.name); // a class has a name, too
  return typeof name === 'string' ? name : '';
}
