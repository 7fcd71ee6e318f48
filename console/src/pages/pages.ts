import type { ComponentType } from 'preact';
import { Overview } from './overview.js';

export type Page = {
  /** The path below `/console/`. */
  readonly path: string;
  readonly title: string;
  /** The second key of the keyboard shortcut `g …`. */
  readonly key: string;
  readonly load: () => Promise<ComponentType>;
};

/** The pages in the order of the navigation. All but the first are loaded when they are opened. */
export const PAGES: readonly Page[] = [
  { path: '', title: 'Overview', key: 'o', load: async () => Overview },
  { path: 'why', title: 'Why?', key: 'w', load: async () => (await import('./why.js')).Why },
  { path: 'policy', title: 'Policy', key: 'p', load: async () => (await import('./policy/policy.js')).Policy },
  { path: 'ask', title: 'Ask', key: 'a', load: async () => (await import('./ask/ask.js')).Ask },
  { path: 'traffic', title: 'Traffic', key: 't', load: async () => (await import('./traffic/traffic.js')).Traffic },
  {
    path: 'findings',
    title: 'Findings',
    key: 'f',
    load: async () => (await import('./findings/findings.js')).Findings,
  },
  { path: 'names', title: 'Names', key: 'd', load: async () => (await import('./names/names.js')).Names },
  {
    path: 'inspection',
    title: 'Inspection',
    key: 'i',
    load: async () => (await import('./inspection/inspection.js')).Inspection,
  },
  { path: 'nodes', title: 'Nodes', key: 'n', load: async () => (await import('./nodes/nodes.js')).Nodes },
  {
    path: 'integrations',
    title: 'Integrations',
    key: 'k',
    load: async () => (await import('./integrations/integrations.js')).Integrations,
  },
  {
    path: 'statecharts',
    title: 'Statecharts',
    key: 'c',
    load: async () => (await import('./statecharts/statecharts.js')).Statecharts,
  },
  {
    path: 'settings',
    title: 'Settings',
    key: 's',
    load: async () => (await import('./settings/settings.js')).Settings,
  },
];
