import { describe, expect, test } from 'vitest';
import type { AssertionFailure } from '#contracts/analysis/assertion.js';
import { CHECKED, SINCE, STORED, TOKENS } from './fake-management.js';
import { rig } from './rig.js';

const PATH = '/api/v1/assertions';
/** The policy in force of the fake node denies everything. */
const holding = { id: 'no-ssh', never: { ports: [22] } };
const broken = { id: 'web', always: { from: ['10.0.0.7'], to: ['192.0.2.1'], ports: [80] } };
const shown = (assertion: { readonly id: string }) => ({
  id: assertion.id,
  assertion,
  result: 'holds',
  message: 'the assertion holds',
  regions: [],
  regions_omitted: 0,
});

async function filled() {
  const own = await rig();
  await own.ask('PUT', PATH, { body: { assertions: [holding, broken] } });
  own.node.changes.length = 0;
  return own;
}

describe('the list of assertions', () => {
  test('the list of assertions is empty with the revision 0 before the first write', async () => {
    const { ask } = await rig();
    const answer = await ask('GET', PATH);
    expect([answer.statusCode, answer.headers.etag, answer.json()]).toEqual([
      200,
      '"assertions.0"',
      { items: [], revision: 0, updated_at: null, updated_by: null },
    ]);
  });

  test('the list of assertions contains the result of each assertion for the policy in force', async () => {
    const { ask } = await filled();
    const answer = await ask('GET', PATH, { token: TOKENS.readonly });
    expect(answer.headers.etag).toBe('"assertions.1"');
    expect(answer.json()).toEqual({
      items: [
        shown(holding),
        {
          ...shown(broken),
          result: 'broken',
          message: 'default_policy denies 10.0.0.7 → 192.0.2.1 tcp/80',
          regions: [
            expect.objectContaining({
              decider: { decision: 'deny', mode: 'enforce', source_group: null, rule: null },
              example: expect.objectContaining({
                src: '10.0.0.7',
                dst: '192.0.2.1',
                proto: 6,
                dst_port: 80,
              }) as unknown,
            }),
          ],
        },
      ],
      revision: 1,
      updated_at: SINCE,
      updated_by: 'alice',
    });
  });

  test('the list of assertions is written only if the If-Match header has its ETag', async () => {
    const { ask, node } = await filled();
    const late = await ask('PUT', PATH, { body: { assertions: [] }, headers: { 'if-match': '"assertions.0"' } });
    expect([late.statusCode, late.json().detail]).toEqual([
      412,
      'the stored ETag is "assertions.1"; read it again, and write with the new ETag in If-Match',
    ]);
    expect(node.changes).toEqual([]);
    const written = await ask('PUT', PATH, { body: { assertions: [] }, headers: { 'if-match': '"assertions.1"' } });
    expect([written.statusCode, written.headers.etag]).toEqual([200, '"assertions.2"']);
    const removal = await ask('DELETE', `${PATH}/no-ssh`, { headers: { 'if-match': '"assertions.1"' } });
    expect(removal.statusCode).toBe(412);
  });

  test('a dry run shows the results of a list, and writes nothing', async () => {
    const { ask, node } = await filled();
    const answer = await ask('PUT', `${PATH}?dry_run=true`, { body: { assertions: [broken] }, token: TOKENS.readonly });
    expect(answer.json()).toMatchObject({ items: [{ id: 'web', result: 'broken' }], revision: 1, dry_run: true });
    expect([answer.headers.etag, node.changes]).toEqual([undefined, []]);
  });

  test.each([
    ['PUT', PATH, { assertions: [] }],
    ['PUT', `${PATH}/no-ssh`, { never: {} }],
    ['DELETE', `${PATH}/no-ssh`, undefined],
  ])('the role readonly may not %s %s', async (method, path, body) => {
    const { ask, node } = await filled();
    const answer = await ask(method, path, { token: TOKENS.readonly, ...(body === undefined ? {} : { body }) });
    expect([answer.statusCode, node.changes]).toEqual([403, []]);
  });

  const problem = (pointer: string, code: string, message: string) => ({ pointer, code, message });
  test.each<[body: object, problems: readonly object[]]>([
    [{}, [problem('/assertions', 'required', 'This field is required.')]],
    [{ assertions: [{ id: 'a' }] }, [problem('/assertions/0/never', 'required', 'This field is required.')]],
    [
      { assertions: [{ id: 'a,b', never: {} }] },
      [problem('/assertions/0/id', 'invalid_value', 'Must be 1 to 253 printable characters without commas.')],
    ],
    [
      { assertions: [holding, holding] },
      [problem('/assertions/1/id', 'duplicate_id', 'An earlier assertion has the same id.')],
    ],
    [
      { assertions: [holding, { id: 'a', never: { to: ['10.0.0.0/40'] } }, { id: 'b', always: { ports: ['x'] } }] },
      [
        problem(
          '/assertions/1/never/to/0',
          'invalid_value',
          'This is neither an address nor a network in CIDR notation.',
        ),
        expect.objectContaining({ pointer: '/assertions/2/always/ports/0' }) as object,
      ],
    ],
    [
      { assertions: [{ id: 'a', never: {}, opens_nothing_since: { file: 'x' } }] },
      [expect.objectContaining({ pointer: '/assertions/0/opens_nothing_since', code: 'unknown_field' }) as object],
    ],
    [
      { assertions: Array.from({ length: 17 }, (_, n) => ({ id: `r${n}`, opens_nothing_since: { revision: 1 } })) },
      [problem('/assertions', 'too_many', 'At most 16 assertions can have opens_nothing_since; here are 17.')],
    ],
    [
      { assertions: Array.from({ length: 1_001 }, (_, n) => ({ id: `${n}`, never: {} })) },
      [expect.objectContaining({ pointer: '/assertions' }) as object],
    ],
  ])('a list with errors is refused: %j', async (body, problems) => {
    const { ask } = await filled();
    for (const dryRun of ['', '?dry_run=true']) {
      const answer = await ask('PUT', PATH + dryRun, { body });
      expect([answer.statusCode, answer.json().type, answer.json().problems]).toEqual([
        400,
        'urn:weir:error:invalid_request',
        problems,
      ]);
    }
    expect((await ask('GET', PATH)).headers.etag).toBe('"assertions.1"');
  });
});

describe('one assertion', () => {
  test('one assertion is read with its result', async () => {
    const { ask } = await filled();
    const answer = await ask('GET', `${PATH}/no-ssh`);
    expect([answer.statusCode, answer.headers.etag, answer.json()]).toEqual([200, '"assertions.1"', shown(holding)]);
    expect((await ask('GET', `${PATH}/other`)).statusCode).toBe(404);
  });

  test('a PUT of one assertion replaces it at its position in the list, or appends a new one', async () => {
    const { ask } = await filled();
    const replaced = await ask('PUT', `${PATH}/no-ssh`, { body: { id: 'no-ssh', never: { ports: [2222] } } });
    expect([replaced.statusCode, replaced.json().assertion]).toEqual([200, { id: 'no-ssh', never: { ports: [2222] } }]);
    const added = await ask('PUT', `${PATH}/no%20telnet`, { body: { never: { ports: [23] } } });
    expect([added.statusCode, added.headers.location, added.headers.etag]).toEqual([
      201,
      `${PATH}/no%20telnet`,
      '"assertions.3"',
    ]);
    const ids = ((await ask('GET', PATH)).json().items as readonly { id: string }[]).map(({ id }) => id);
    expect(ids).toEqual(['no-ssh', 'web', 'no telnet']);
  });

  test('one assertion with `If-None-Match: *` is only created', async () => {
    const { ask } = await filled();
    const headers = { 'if-none-match': '*' };
    expect((await ask('PUT', `${PATH}/new`, { body: { never: {} }, headers })).statusCode).toBe(201);
    const again = await ask('PUT', `${PATH}/new`, { body: { never: {} }, headers });
    expect([again.statusCode, again.json().detail]).toEqual([
      412,
      expect.stringMatching(/^the assertion new exists already/),
    ]);
    expect(
      (await ask('PUT', `${PATH}/more`, { body: { never: {} }, headers: { 'if-none-match': '"x"' } })).statusCode,
    ).toBe(400);
  });

  test('one assertion is deleted, and the others stay', async () => {
    const { ask } = await filled();
    expect((await ask('DELETE', `${PATH}/no-ssh`)).statusCode).toBe(204);
    expect((await ask('GET', PATH)).json().items).toMatchObject([{ id: 'web' }]);
    expect((await ask('DELETE', `${PATH}/no-ssh`)).statusCode).toBe(404);
  });

  test('one assertion with errors is refused with pointers into the body', async () => {
    const { ask } = await filled();
    const wrong = await ask('PUT', `${PATH}/web`, { body: { never: { to: ['x'] } } });
    expect([wrong.statusCode, wrong.json().problems]).toEqual([
      400,
      [expect.objectContaining({ pointer: '/never/to/0' })],
    ]);
    const misnamed = await ask('PUT', `${PATH}/web`, { body: { id: 'other', never: {} } });
    expect(misnamed.json().problems).toEqual([
      { pointer: '/id', code: 'invalid_value', message: 'Must be "web", as in the path.' },
    ]);
    expect((await ask('PUT', `${PATH}/a%2Cb`, { body: { never: {} } })).statusCode).toBe(400);
  });

  test('a write of assertions is in the audit trail', async () => {
    const { ask, node } = await rig();
    await ask('PUT', `${PATH}/no-ssh`, { body: holding });
    expect(node.recorded).toMatchObject([
      { type: 'config_change', operation: 'putAssertion', target: `${PATH}/no-ssh`, etag: '"assertions.1"' },
    ]);
  });
});

describe('a policy write', () => {
  const FAILURE: AssertionFailure = {
    id: 'no-ssh',
    result: 'broken',
    message: 'lan/p22 passes any → any tcp/22',
    regions: [],
    regions_omitted: 0,
    before: 'holds',
    effect: 'refuses',
  };

  test('a policy write that breaks an assertion is refused with 409, and the response contains the assertion', async () => {
    const { ask, node } = await rig();
    node.answer.policyWrite = () => ({
      kind: 'refused',
      code: 'assertion_failed',
      detail: 'the write would break the assertion no-ssh',
      assertions: [FAILURE],
    });
    const answer = await ask('PUT', '/api/v1/policy', { body: {} });
    expect([answer.statusCode, answer.json()]).toEqual([
      409,
      {
        type: 'urn:weir:error:assertion_failed',
        title: 'Assertion failed',
        status: 409,
        detail: 'the write would break the assertion no-ssh',
        error: 'the write would break the assertion no-ssh.',
        assertions: [FAILURE],
      },
    ]);
  });

  test('the response to a dry run of a policy write has the member `assertions`', async () => {
    const { ask, node } = await rig();
    node.answer.policyWrite = () => ({ ...CHECKED, assertions: [FAILURE] });
    expect((await ask('PUT', '/api/v1/policy?dry_run=true', { body: {} })).json().assertions).toEqual([FAILURE]);
  });

  test.each([
    ['override=a', ['a']],
    ['override=a,b&override=c%20d', ['a', 'b', 'c d']],
  ])('the response to a policy write with ?%s contains the assertions %j', async (query, overrides) => {
    const { ask, node } = await rig();
    const id = STORED.record.id;
    for (const [method, path, body] of [
      ['PUT', '/api/v1/policy', {}],
      ['DELETE', `/api/v1/policies/${id}`, undefined],
      ['POST', `/api/v1/policies/${id}/activate`, undefined],
      ['POST', `/api/v1/policies/${id}/rollback`, { revision: 1 }],
      ['PUT', `/api/v1/policies/${id}/source-groups/lan`, {}],
    ] as const) {
      node.changes.length = 0;
      await ask(method, `${path}?${query}`, body === undefined ? {} : { body });
      expect([path, node.changes]).toMatchObject([path, [{ with: { overrides } }]]);
    }
  });

  test('a policy write whose query parameter `override` is empty is refused', async () => {
    const { ask } = await rig();
    const answer = await ask('PUT', '/api/v1/policy?override=a,', { body: {} });
    expect([answer.statusCode, answer.json().problems]).toEqual([
      400,
      [{ pointer: '?override', code: 'invalid_parameter', message: 'Must be ids of assertions, separated by commas.' }],
    ]);
  });

  test('the history of a policy contains the assertions that the write of a revision was allowed to break (`?override`)', async () => {
    const { ask } = await rig();
    type History = { readonly items: readonly { overrides: unknown; activated: { overrides: unknown } | null }[] };
    const { items } = (await ask('GET', `/api/v1/policies/${STORED.record.id}/history`)).json<History>();
    expect(items.map(({ overrides, activated }) => [overrides, activated?.overrides ?? null])).toEqual([
      [['web'], ['no-ssh']],
      [[], null],
      [[], null],
    ]);
  });
});
