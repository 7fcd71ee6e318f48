import { u32At } from '#arrays/read.js';
import type { ListedMembership, SharedAddress } from '#contracts/membership.js';
import type { Group } from '#contracts/policy-model.js';
import type { Warning } from '#contracts/policy-problem.js';
import { formatAddress } from '#policy/model/ipv4.js';
import { contradictionsOf } from './selector-lint.js';
import { WarningList } from './warning-list.js';

/**
 * Returns the warnings about selectors that depend on the members now. `groups` must be in the order of the
 * document. Pointers are relative to the PolicyConfig.
 */
export function lintMembers(
  groups: readonly Group[],
  { scope: resolution, list, shared = [] }: ListedMembership,
): Warning[] {
  const warnings = new WarningList();
  const selected = selectedKeys(list);
  for (const { pointer, selectors } of groups) {
    for (const [place, { key, source }] of selectors.entries()) {
      const at = `${pointer}/sources/kubernetes/${place}`;
      if (!resolution.resolved.has(key)) warnings.add(at, 'selector_unresolved', UNRESOLVED);
      else if (!selected.has(key) && !resolution.networks.has(key) && contradictionsOf(source).length === 0)
        warnings.add(at, 'selector_matches_nothing', 'This selector selects no address now.');
      const own = shared.filter(({ integrations }) => integrations.includes(source.integration));
      if (own.length > 0) warnings.add(at, 'address_shared', sharedText(own));
    }
  }
  return warnings.all();
}

const UNRESOLVED =
  'This selector was never resolved. Until it is, the denies of the group match every source, and its allows match only the static sources.';

function sharedText(shared: readonly SharedAddress[]): string {
  const texts = shared.map(({ address, integrations }) => `${formatAddress(address)} (${integrations.join(', ')})`);
  return `Different objects of several integrations have the same address, such as ${texts.join(', ')}: no allow rule by a selector matches it, and every deny rule by a selector does.`;
}

function selectedKeys({ added, sets }: ListedMembership['list']): ReadonlySet<string> {
  const occurring = new Set<number>();
  for (let at = 0; at < sets.length; at++) occurring.add(u32At(sets, at));
  return new Set(added.filter(({ number }) => occurring.has(number)).flatMap(({ keys }) => keys));
}
