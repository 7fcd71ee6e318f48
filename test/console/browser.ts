import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import { type Browser, type BrowserContext, chromium, type Page } from 'playwright-core';
import { expect } from 'vitest';

const CHROMIUM = '/usr/bin/chromium';
/** Chromium reports each response of this kind, also where a page expects a refusal and shows it. */
const REFUSED = /^Failed to load resource: the server responded with a status of (400|409|412)\b/;
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** Chromium with one page, signed in at a node by default. `faults` collects what must not occur. */
export type ConsoleBrowser = {
  readonly context: BrowserContext;
  readonly page: Page;
  /** Errors of the page and of its content security policy. `close` expects none. */
  readonly faults: string[];
  /** Returns a further page, signed in at another node. */
  newPage(url: string, token: string): Promise<Page>;
  /** Opens a page of the console by its path below `/console/`. */
  open(path: string): Promise<void>;
  /** Expects that axe finds no violation of WCAG 2.2 AA on the present page, in both themes. */
  expectAccessible(): Promise<void>;
  close(): Promise<void>;
};

/** Starts Chromium for several sessions after each other. */
export const launch = (): Promise<Browser> => chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox'] });

/** Starts Chromium for pictures, which do not depend on the fonts and the screen of the machine. */
export const launchForPictures = (): Promise<Browser> =>
  chromium.launch({
    executablePath: CHROMIUM,
    args: ['--no-sandbox', '--font-render-hinting=none', '--disable-lcd-text', '--force-color-profile=srgb'],
    env: { ...process.env, FONTCONFIG_FILE: fileURLToPath(new URL('fonts.conf', import.meta.url)) },
  });

/**
 * `shared`: a running Chromium, which stays open at the end. It keeps no cookies of earlier sessions.
 * `scale`: the pixels of a screenshot for each CSS pixel; it also sets the language and the time zone.
 */
export async function openBrowser(
  url: string,
  token: string | null,
  shared?: Browser,
  scale?: number,
): Promise<ConsoleBrowser> {
  const browser = shared ?? (await launch());
  // Axe must not see a colour in the middle of its transition.
  const context = await browser.newContext({
    viewport: { width: 1440, height: 900 },
    ...(scale === undefined ? {} : { deviceScaleFactor: scale, locale: 'en-GB', timezoneId: 'UTC' }),
    reducedMotion: 'reduce',
    // The certificates of the tests are signed by themselves.
    ignoreHTTPSErrors: true,
  });
  const faults: string[] = [];
  const watched = async (): Promise<Page> => {
    const page = await context.newPage();
    page.on('console', (message) => {
      if (message.type() === 'error' && !REFUSED.test(message.text())) faults.push(message.text());
    });
    page.on('pageerror', (error) => faults.push(String(error)));
    return page;
  };
  const signIn = async (at: string, bearer: string): Promise<void> => {
    const answer = await context.request.post(`${at}/api/v1/session`, {
      headers: { authorization: `Bearer ${bearer}` },
    });
    expect(answer.status()).toBe(201);
  };
  const page = await watched();
  if (token !== null) await signIn(url, token);
  return {
    context,
    page,
    faults,
    newPage: async (at, bearer) => {
      await signIn(at, bearer);
      return watched();
    },
    open: async (path) => {
      await page.goto(`${url}/console/${path}`);
      await page.locator('main h1').waitFor();
    },
    expectAccessible: async () => {
      // `evaluate` is not subject to the content security policy of the page.
      await page.evaluate(AXE);
      for (const colorScheme of ['light', 'dark'] as const) {
        await page.emulateMedia({ colorScheme });
        const violations = await page.evaluate(async () => {
          const { axe } = globalThis as unknown as {
            axe: { run(options: object): Promise<{ violations: Violation[] }> };
          };
          type Violation = { id: string; nodes: { target: unknown[]; failureSummary: string }[] };
          const tags = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];
          // Axe describes each node that passes a rule, if `resultTypes` does not leave these nodes out.
          const result = await axe.run({ runOnly: { type: 'tag', values: tags }, resultTypes: ['violations'] });
          return result.violations.flatMap(({ id, nodes }) =>
            nodes.map(({ target, failureSummary }) => `${id} ${String(target)} ${failureSummary}`),
          );
        });
        expect({ colorScheme, violations }).toEqual({ colorScheme, violations: [] });
      }
      await page.emulateMedia({ colorScheme: null });
    },
    close: async () => {
      await (shared === undefined ? browser : context).close();
      expect(faults).toEqual([]);
    },
  };
}
