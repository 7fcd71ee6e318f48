import { expect, test } from 'vitest';
import type { StructLayout } from '#dataplane/abi/btf.js';
import { FLOW_OFFSETS, FLOW_STRUCT_BYTES } from '#dataplane/abi/flow.js';
import { BpfObject, builtObject } from '#dataplane/loader/bpf-object.js';
import { conversion, flowConversion } from '#dataplane/upgrade/struct-conversion.js';

const field = (offset: number, size: number, count = 1) => ({ offset, size, count });

test('`conversion` (copies a struct of one layout into another layout) finds struct members by name, widens or truncates values, and sets a member to 0 if the source struct has no such member', () => {
  const from: StructLayout = {
    size: 24,
    fields: { a: field(0, 4), gone: field(4, 4), pair: field(8, 8, 2) },
  };
  const to: StructLayout = {
    size: 24,
    fields: { pair: field(0, 4, 2), a: field(8, 8), fresh: field(16, 8) },
  };
  const source = new DataView(new ArrayBuffer(24));
  source.setUint32(0, 0xffff_fff1, true);
  source.setUint32(4, 7, true);
  source.setBigUint64(8, 0x1_0000_0002n, true);
  source.setBigUint64(16, 3n, true);
  const target = new DataView(new Uint8Array(24).fill(0xee).buffer);
  conversion(from, to)(source, 0, target, 0);
  expect([
    target.getUint32(0, true),
    target.getUint32(4, true),
    target.getBigUint64(8, true),
    target.getBigUint64(16, true),
  ]).toEqual([2, 3, 0xffff_fff1n, 0n]);
});

test('the description of the map flows in the BPF object has the sizes and offsets of FLOW_STRUCT_BYTES and FLOW_OFFSETS', () => {
  const object = new BpfObject(builtObject);
  const { key, value, keySize, valueSize } = object.describe('flows');
  object.close();
  expect([key.size, value.size, keySize, valueSize]).toEqual([4, FLOW_STRUCT_BYTES, 4, FLOW_STRUCT_BYTES]);
  const offsets = Object.entries(value.fields).map(([name, { offset }]) => [name, offset]);
  expect(Object.fromEntries(offsets)).toEqual(
    expect.objectContaining({
      'key.low_address': FLOW_OFFSETS.key,
      judgement: FLOW_OFFSETS.judgement,
      packets: FLOW_OFFSETS.packets,
    }),
  );
  expect(value.fields.bytes).toEqual({ offset: FLOW_OFFSETS.bytes, size: 4, count: 2 });
});

test.each([
  ['another policy', 'gets epoch 0', false, 0x5_0000_0011n, 0x11n],
  ['another policy', 'keeps epoch 0 if no policy classified the flow', false, 0n, 0n],
  ['the same policy', 'keeps its epoch and verdict word', true, 0x5_0000_0011n, 0x5_0000_0011n],
])(
  'the migration of a flow to a new datapath with %s treats the epoch (number of the deciding policy) as expected: the flow %s',
  (_, __, sameProgram, before, after) => {
    const layout: StructLayout = { size: 16, fields: { 'key.low_port': field(0, 2), judgement: field(8, 8) } };
    const source = new DataView(new ArrayBuffer(16));
    source.setUint16(0, 53, true);
    source.setBigUint64(8, before, true);
    const target = new DataView(new ArrayBuffer(16));
    flowConversion(layout, layout, sameProgram)(source, 0, target, 0);
    expect([target.getUint16(0, true), target.getBigUint64(8, true)]).toEqual([53, after]);
  },
);
