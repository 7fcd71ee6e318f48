import { ApiFailure, api, bodyOf, responseOf, type Schemas } from '../../api/client.js';
import type { Applied, DraftProblem, Judgement, PolicyChange, Terms } from '../../charts/draft.chart.js';
import { inSlices } from '../../slices.js';
import { formOf, readText, type TextDocument, withNames } from './policy-text.js';

/** A stored policy as the text that the user edits. `record`: null for a new policy. */
export type Stored = {
  readonly record: Schemas['PolicyRecord'] | null;
  readonly document: unknown;
  readonly etag: string | null;
};

export async function storedPolicy(id: string, signal: AbortSignal): Promise<Stored> {
  const { data, headers } = await responseOf(api.GET('/api/v1/policies/{id}', { params: { path: { id } }, signal }));
  return { record: data, document: documentOf(data), etag: headers.get('etag') };
}

/** Returns the document that a client must send to store this policy. */
export function documentOf({ form, mode, name, policy }: Schemas['StoredPolicy']): unknown {
  return form === 'singleton' ? policy : { mode, ...(name === null ? {} : { name }), policy };
}

/** The document of a revision; null if the revision is no longer stored. */
export async function documentOfRevision(id: string, revision: number | null, signal: AbortSignal): Promise<unknown> {
  if (revision === null) return null;
  try {
    const params = { path: { id, revision: String(revision) } } as never;
    return documentOf(await bodyOf(api.GET('/api/v1/policies/{id}/history/{revision}', { params, signal })));
  } catch (failure) {
    if (failure instanceof ApiFailure) return null;
    throw failure;
  }
}

type Query = Readonly<Record<string, string>>;

/**
 * Sends a change to the node, or only tests it (`dry_run`). The text of a change must have no syntax errors.
 */
function send(change: PolicyChange, query: Query, document: TextDocument | null, signal?: AbortSignal) {
  const header = query.dry_run === undefined && change.etag !== null ? { 'if-match': change.etag } : {};
  const json = document?.json ?? null;
  const rest = {
    ...(signal === undefined ? {} : { signal }),
    // Send the text itself if it is JSON: to serialize a large document takes as long as to parse it.
    ...(json === null ? {} : { bodySerializer: () => json }),
  };
  if (change.kind === 'text') {
    const value = document?.value ?? {};
    const body = value as never;
    const more = change.activate === null ? {} : { activate: String(change.activate) };
    if (change.id !== null) {
      const path = { id: change.id };
      const form = formOf(value);
      const target = { path, header, query: { ...query, ...more, form } } as never;
      return api.PUT('/api/v1/policies/{id}', { params: target, body, ...rest });
    }
    return formOf(value) === 'envelope'
      ? api.POST('/api/v1/policies', { params: { query: { ...query, ...more } } as never, body, ...rest })
      : api.PUT('/api/v1/policy', { params: { header, query: { ...query, ...more } } as never, body, ...rest });
  }
  const target = { path: { id: change.id }, header, query } as never;
  switch (change.kind) {
    case 'activate':
      return api.POST('/api/v1/policies/{id}/activate', { params: target, ...rest });
    case 'delete':
      return api.DELETE('/api/v1/policies/{id}', { params: target, ...rest });
    case 'rollback':
      return api.POST('/api/v1/policies/{id}/rollback', {
        params: target,
        body: { revision: change.revision },
        ...rest,
      });
  }
}

function documentIn(change: PolicyChange, signal?: AbortSignal): Promise<TextDocument | null> {
  return inSlices(
    (function* () {
      if (change.kind !== 'text') return null;
      const text = change.text.toString();
      yield;
      const document = readText(text);
      yield;
      return document;
    })(),
    signal,
  );
}

/**
 * Makes the node check a change by a dry run. Finds syntax errors without the node. Throws if the node does
 * not respond.
 */
export async function judge(
  change: PolicyChange,
  signal: AbortSignal,
  onRead: (document: TextDocument) => Promise<void> = async () => {},
): Promise<Judgement> {
  const document = await documentIn(change, signal);
  if (document !== null && document.value === null)
    return { isSound: false, problems: document.syntax.map((problem) => ({ pointer: '', ...problem })) };
  if (document !== null) await onRead(document);
  try {
    const sent = send(change, { dry_run: 'true' }, document, signal) as Promise<{ data?: unknown; response: Response }>;
    const result = (await bodyOf(sent)) as Schemas['PolicyDryRun'];
    return { isSound: true, result, warnings: await placed(result.warnings, document) };
  } catch (failure) {
    if (!(failure instanceof ApiFailure) || failure.status >= 500 || failure.status === 401 || failure.status === 429)
      throw failure;
    const { problems = [], detail } = failure.problem;
    const found = problems.length === 0 ? [{ pointer: '', message: detail }] : await placed(problems, document);
    return { isSound: false, problems: found };
  }
}

async function placed(
  problems: readonly { readonly pointer: string; readonly message: string }[],
  document: TextDocument | null,
): Promise<DraftProblem[]> {
  const places =
    document === null || problems.length === 0
      ? undefined
      : await inSlices(document.places(problems.map(({ pointer }) => pointer)));
  const value = document?.value ?? null;
  return problems.map(({ pointer, message }) => ({
    pointer: withNames(pointer, value),
    message: withNames(message, value),
    ...places?.get(pointer),
  }));
}

/**
 * Writes a change. Throws `ApiFailure`; its status is 412 if another write has replaced the text of the
 * change.
 */
export async function apply(change: PolicyChange, terms: Terms): Promise<Applied> {
  const query = {
    ...(terms.confirmWithin === null ? {} : { confirm_within: String(terms.confirmWithin) }),
    ...(terms.rollout == null
      ? {}
      : { rollout_share: String(terms.rollout.share), rollout_hold: String(terms.rollout.hold) }),
    ...(terms.comment.trim() === '' ? {} : { comment: terms.comment.trim() }),
    ...(terms.overrides.length === 0 ? {} : { override: terms.overrides.join(',') }),
  };
  const sent = send(change, query, await documentIn(change)) as Promise<{ data?: unknown; response: Response }>;
  const { data, headers } = await responseOf(sent);
  const { revision } = (data ?? {}) as { revision?: number };
  const generation = headers.get('weir-generation');
  const changed = change.kind !== 'text' || change.activate !== false;
  return {
    generation: changed && generation !== null ? Number(generation) : null,
    revision: revision ?? (Number(/\.(\d+)"$/.exec(headers.get('etag') ?? '')?.[1] ?? Number.NaN) || null),
    at: Date.now(),
  };
}
