import { type DescMessage, type DescMethod, fromBinary, type MessageShape, toBinary } from '@bufbuild/protobuf';

/** A method of gRPC: its path, and the codecs of its messages. */
export type Method<Request, Response> = {
  readonly path: string;
  readonly encode: (message: Request) => Buffer;
  readonly decode: (bytes: Buffer) => Response;
};

/** Converts a generated method to the form that gRPC needs. */
export function methodOf<I extends DescMessage, O extends DescMessage>(
  method: DescMethod & { readonly input: I; readonly output: O },
): Method<MessageShape<I>, MessageShape<O>> {
  const { input, output, parent, name } = method;
  return {
    path: `/${parent.typeName}/${name}`,
    encode: (message) => Buffer.from(toBinary(input, message)),
    decode: (bytes) => fromBinary(output, bytes),
  };
}
