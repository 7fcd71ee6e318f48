import type { Needs } from '#bus/bus-messages.js';
import { type Lookups, lookupsOf } from '#contracts/dns/dns-lookups.js';
import { NO_SELECTORS } from '#contracts/kubernetes/membership.js';
import type { PolicyRecord, StoredPolicy } from '#contracts/policy/policy-record.js';
import type { PolicyWrite } from '#contracts/policy/policy-write.js';
import { NONE, type Program } from '#contracts/policy/program.js';
import type { ProofSamples } from '#contracts/policy/proof-types.js';
import type { InspectionImage } from '#contracts/service-plane/inspection-image.js';
import { namePool, nameTables } from '#policy/compile/lookups/name-pool.js';
import { groupSourcesOf } from '#policy/model/sources/group-sources.js';

const none = new Uint32Array(0);
const zero = new Uint32Array(1);
export const PROGRAM: Program = {
  sources: { starts: zero, values: zero },
  lists: { offsets: zero, ruleBlocks: none, defaults: none },
  ruleBlocks: { destinations: none, wildcards: none, named: none },
  destinations: { starts: none, values: none, offsets: zero },
  portMaps: { starts: none, values: none, offsets: zero },
  sourcePortMaps: { starts: none, values: none, offsets: zero },
  ipv6: null,
  names: [],
  members: null,
  namePortMaps: { ruleBlocks: none, names: none, portMaps: none },
  lookups: {
    sources: { starts: zero, values: zero },
    members: null,
    classes: { offsets: zero, groups: none, defaults: none },
    patterns: { offsets: zero, groups: none, words: none },
    names: nameTables(namePool([])),
  },
  ranks: 1,
  ruleNames: {
    policy: null,
    identities: new Uint32Array(2),
    groups: Uint32Array.of(NONE),
    groupIds: { bytes: new Uint8Array(), ends: none },
    ruleIds: { bytes: new Uint8Array(), ends: zero },
    verdicts: Uint8Array.of(2),
    sources: groupSourcesOf([]),
  },
};

export const LOOKUPS: Lookups = lookupsOf(PROGRAM, 1);

export const INSPECTION: InspectionImage = {
  generation: 1,
  scope: NO_SELECTORS,
  program: PROGRAM,
  policy: null,
  intercepts: false,
};

export const SAMPLES: ProofSamples = [{ family: 'ipv4', packets: none, expected: none, classes: 1, complete: true }];

export const RECORD: PolicyRecord = {
  id: '11111111-1111-4111-8111-111111111111',
  name: 'edge',
  form: 'envelope',
  mode: 'enforce',
  revision: 1,
  created_at: '2026-01-01T00:00:00.000Z',
  updated_at: '2026-01-01T00:00:00.000Z',
  updated_by: 'alice',
  active: true,
};
export const STORED: StoredPolicy = { record: RECORD, body: new TextEncoder().encode('{}') };
export const NEEDS: Needs = { dataplane: true, dns: false, servicePlane: false };

export const WRITE: PolicyWrite = {
  operation: 'put',
  target: { by: 'new' },
  form: 'envelope',
  body: new TextEncoder().encode('{"mode":"enforce","policy":{}}'),
  ifMatch: undefined,
  ifNoneMatch: undefined,
  activate: true,
  dryRun: false,
  mayWatch: true,
  author: 'alice',
};
