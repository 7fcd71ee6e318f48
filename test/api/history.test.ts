import { describe, expect, test } from 'vitest';
import { BODY, ETAG, fakeManagement, RECORD, REVISIONS, SINCE, STORED } from './fake-management.js';
import { rig } from './rig.js';

const HISTORY = `/api/v1/policies/${RECORD.id}/history`;
const ROLLBACK = `/api/v1/policies/${RECORD.id}/rollback`;
const NONE = {
  via: null,
  comment: null,
  generation: null,
  source_group: null,
  overrides: [],
  of_revision: null,
  size: null,
  bytes: null,
  activated: null,
  removed: null,
};

describe('the history of a policy in the API', () => {
  test('the history of a policy lists each revision without its document, newest first, with null for facts that an older build did not store', async () => {
    const { ask } = await rig();
    const reply = await ask('GET', HISTORY);
    const [last, second, first] = REVISIONS.map(({ facts: _, ...record }) => record);
    const facts = REVISIONS[1]?.facts;
    expect(reply.json()).toEqual({
      items: [
        {
          ...last,
          ...NONE,
          via: 'rollback',
          overrides: ['web'],
          of_revision: 1,
          generation: 7,
          bytes: 0,
          activated: { by: 'ann', at: SINCE, comment: null, overrides: ['no-ssh'], generation: null },
        },
        { ...second, ...NONE, ...facts },
        { ...first, ...NONE },
      ],
      next_cursor: null,
    });
    expect(reply.headers['weir-generation']).toBe('7');
  });

  test('the history of a policy is returned in pages, each with a cursor for the next page', async () => {
    const { ask } = await rig();
    const page = async (query: string) => {
      type Page = { readonly items: readonly { readonly revision: number }[]; readonly next_cursor: string | null };
      const { items, next_cursor: next } = (await ask('GET', `${HISTORY}?${query}`)).json<Page>();
      return [items.map(({ revision }) => revision), next];
    };
    expect(await page('limit=2')).toEqual([[3, 2], '2']);
    expect(await page('limit=2&cursor=2')).toEqual([[1], null]);
    expect(await page('limit=3')).toEqual([[3, 2, 1], null]);
  });

  test('the history of a policy that never existed is 404', async () => {
    const { policies } = fakeManagement();
    const { ask } = await rig({}, fakeManagement({ policies: { ...policies, history: async () => [] } }));
    expect((await ask('GET', HISTORY)).json()).toMatchObject({ status: 404, detail: 'there is no such policy' });
  });

  test('the response for a revision contains its entry in the history and its document, and has the ETag of this revision', async () => {
    const { ask } = await rig();
    const reply = await ask('GET', `${HISTORY}/3`);
    expect(reply.json()).toMatchObject({ revision: 3, via: 'rollback', of_revision: 1, policy: JSON.parse(BODY) });
    expect(reply.headers.etag).toBe(ETAG);
    expect((await ask('GET', `${HISTORY}/3`, { headers: { 'if-none-match': ETAG } })).statusCode).toBe(304);
    expect((await ask('GET', `${HISTORY}/9`)).json()).toMatchObject({
      status: 404,
      detail: 'the history of the policy has no revision 9',
    });
    for (const wrong of ['0', 'x', '-1', '1.5'])
      expect((await ask('GET', `${HISTORY}/${wrong}`)).statusCode, wrong).toBe(400);
  });
});

describe('a rollback in the API', () => {
  test('a rollback in the API writes an earlier revision of the policy again, with the comment, the preconditions and all parameters of the request', async () => {
    const { ask, node } = await rig();
    const query = 'comment=DNS%20was%20gone&confirm_within=60&rehearse=false&activate=false';
    const reply = await ask('POST', `${ROLLBACK}?${query}`, { body: { revision: 1 }, headers: { 'if-match': ETAG } });
    expect(reply.statusCode).toBe(200);
    expect(reply.json()).toMatchObject({ id: RECORD.id, policy: JSON.parse(BODY), warnings: [] });
    expect(node.changes).toEqual([
      {
        call: 'policies.write',
        with: {
          operation: 'rollback',
          target: { by: 'id', id: RECORD.id },
          revision: 1,
          comment: 'DNS was gone',
          form: 'envelope',
          body: new Uint8Array(),
          ifMatch: ETAG,
          ifNoneMatch: undefined,
          activate: false,
          dryRun: false,
          mayWatch: true,
          rehearse: false,
          terms: { kind: 'confirm', withinMs: 60_000 },
          author: expect.any(String),
        },
      },
    ]);
  });

  test.each([{}, { revision: 0 }, { revision: '1' }, { revision: 1, id: 'x' }])(
    'a rollback with the body %j is refused',
    async (body) => {
      const { ask, node } = await rig();
      expect((await ask('POST', ROLLBACK, { body })).statusCode).toBe(400);
      expect(node.changes).toEqual([]);
    },
  );
});

const WRITTEN = { kind: 'written', created: true, stored: STORED, generation: 8, warnings: [], proof: null } as const;

describe('the comment of a policy write', () => {
  const GROUP = `/api/v1/policies/${RECORD.id}/source-groups/lan`;
  test.each([
    ['PUT', '/api/v1/policy', BODY],
    ['POST', '/api/v1/policies', '{"mode":"enforce","policy":{}}'],
    ['PUT', `/api/v1/policies/${RECORD.id}`, '{"mode":"enforce","policy":{}}'],
    ['PUT', '/api/v1/policies/by-name/office', '{"mode":"enforce","policy":{}}'],
    ['DELETE', `/api/v1/policies/${RECORD.id}`, undefined],
    ['POST', `/api/v1/policies/${RECORD.id}/activate`, undefined],
    ['PUT', GROUP, '{"sources":{"ips":["10.0.0.7"]}}'],
    ['POST', '/api/v1/policy/pending/revert', undefined],
  ])('%s %s accepts a comment, which the history shows', async (method, path, body) => {
    const { ask, node } = await rig();
    const answer = await ask(method, `${path}?comment=why%20%E2%82%AC`, body === undefined ? {} : { body });
    expect(answer.statusCode).toBeLessThan(300);
    expect(node.changes).toMatchObject([{ with: { comment: 'why €' } }]);
  });

  test('the removal of a source group accepts a comment, which the history shows', async () => {
    const { ask, node } = await rig();
    node.answer.policyWrite = () => ({ ...WRITTEN, created: false });
    expect((await ask('DELETE', `${GROUP}?comment=why`)).statusCode).toBe(204);
    expect(node.changes).toMatchObject([{ with: { operation: 'delete', sourceGroup: 'lan', comment: 'why' } }]);
  });

  test.each([
    ['empty', 'comment='],
    ['of white space', 'comment=%20%20'],
    ['of two lines', 'comment=a%0Ab'],
    ['with a control character', 'comment=a%1b%5B31m'],
    ['with a mark that reverses the text', 'comment=a%E2%80%AEb'],
    ['of 501 characters', `comment=${'%F0%9F%98%80'.repeat(501)}`],
  ])('a policy write with a comment %s is refused', async (_, query) => {
    const { ask, node } = await rig();
    const reply = await ask('PUT', `/api/v1/policy?${query}`, { body: BODY });
    expect(reply.json()).toMatchObject({
      status: 400,
      problems: [{ pointer: '?comment', message: 'Must be 1 to 500 printable characters on one line.' }],
    });
    expect(node.changes).toEqual([]);
  });

  test('a comment of 500 characters outside of the basic plane is accepted', async () => {
    const { ask, node } = await rig();
    await ask('PUT', `/api/v1/policy?comment=${'%F0%9F%98%80'.repeat(500)}`, { body: BODY });
    expect(node.changes).toMatchObject([{ with: { comment: '😀'.repeat(500) } }]);
  });
});
