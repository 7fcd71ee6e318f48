import { create, type MessageInitShape } from '@bufbuild/protobuf';
import type {
  Condition,
  KeyChange,
  KeyRange,
  KeyValue,
  Operation,
  Transaction,
  TransactionResult,
} from './etcd-types.js';
import {
  Compare_CompareResult as CompareResult,
  type CompareSchema,
  Compare_CompareTarget as CompareTarget,
  type Event,
  Event_EventType as EventType,
  type RequestOpSchema,
  type KeyValue as SentKeyValue,
  type TxnRequest,
  TxnRequestSchema,
  type TxnResponse,
} from './generated/etcd_pb.js';

const encoder = new TextEncoder();
const decoder = new TextDecoder();
const bytesOf = (key: string) => encoder.encode(key);
export const rangeOf = ({ from, to }: KeyRange) => ({ key: bytesOf(from), rangeEnd: bytesOf(to) });

export function transactionRequest({ when, apply, otherwise = [] }: Transaction): TxnRequest {
  return create(TxnRequestSchema, {
    compare: when.map(compareOf),
    success: apply.map(requestOf),
    failure: otherwise.map(requestOf),
  });
}

function compareOf(condition: Condition): MessageInitShape<typeof CompareSchema> {
  const result = CompareResult.EQUAL;
  // etcd applies a comparison to each key of a range. It treats an empty range like a key that does not
  // exist.
  if ('empty' in condition)
    return {
      ...rangeOf(condition.empty),
      result,
      target: CompareTarget.CREATE,
      targetUnion: { case: 'createRevision', value: 0n },
    };
  const key = bytesOf(condition.key);
  return 'modRevision' in condition
    ? { key, result, target: CompareTarget.MOD, targetUnion: { case: 'modRevision', value: condition.modRevision } }
    : {
        key,
        result,
        target: CompareTarget.CREATE,
        targetUnion: { case: 'createRevision', value: condition.createRevision },
      };
}

function requestOf(operation: Operation): MessageInitShape<typeof RequestOpSchema> {
  switch (operation.type) {
    case 'put': {
      const { key, value, lease = 0n } = operation;
      return {
        request: { case: 'requestPut', value: { key: bytesOf(key), value, lease } },
      };
    }
    case 'delete':
      return { request: { case: 'requestDeleteRange', value: { key: bytesOf(operation.key) } } };
    case 'delete_range':
      return { request: { case: 'requestDeleteRange', value: rangeOf(operation.range) } };
    case 'get':
      return {
        request: {
          case: 'requestRange',
          value: { key: bytesOf(operation.key), keysOnly: operation.keysOnly ?? false },
        },
      };
    case 'get_range':
      return {
        request: {
          case: 'requestRange',
          value: { ...rangeOf(operation.range), keysOnly: operation.keysOnly ?? false },
        },
      };
  }
}

export function transactionResult({ succeeded, header, responses }: TxnResponse): TransactionResult {
  const found = responses.flatMap(({ response }) =>
    response.case === 'responseRange' ? [response.value.kvs.map(entryOf)] : [],
  );
  return { succeeded, revision: header?.revision ?? 0n, found };
}

export function entryOf({ key, value, createRevision, modRevision, lease }: SentKeyValue): KeyValue {
  return { key: decoder.decode(key), value, createRevision, modRevision, lease };
}

export function changeOf({ type, kv }: Event): KeyChange {
  if (kv === undefined) throw new Error('read a watch event of etcd: it contains no key');
  return type === EventType.DELETE
    ? { type: 'delete', key: decoder.decode(kv.key), modRevision: kv.modRevision }
    : { type: 'put', entry: entryOf(kv) };
}
