import { useSignal } from '@preact/signals';
import type { ComponentType } from 'preact';
import { useEffect } from 'preact/hooks';
import { session } from './node.js';
import { PAGES } from './pages/pages.js';
import { followLink, path } from './router.js';
import { Shell } from './ui/shell.js';
import { SignIn } from './ui/sign-in.js';

export function App() {
  switch (session.state.value) {
    case 'signed_in':
    case 'signing_out':
      return <SignedIn />;
    case 'signed_out':
    case 'signing_in':
      return <SignIn />;
    default:
      return (
        <main class="center" aria-busy="true">
          {session.reason.value ?? ''}
        </main>
      );
  }
}

function SignedIn() {
  const page = PAGES.find((each) => each.path === path.value.split('/')[0]);
  const shown = useSignal<{ readonly path: string; readonly Page: ComponentType } | null>(null);
  useEffect(() => {
    const node = session.current.peek()?.node;
    document.title = [page?.title ?? 'Not found', node, 'Weir'].filter(Boolean).join(' · ');
    if (page === undefined) return;
    let isCurrent = true;
    void page.load().then((Page) => {
      if (isCurrent) shown.value = { path: page.path, Page };
    });
    return () => {
      isCurrent = false;
    };
  }, [page]);
  const Page = shown.value?.path === page?.path ? shown.value?.Page : undefined;
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: this handler only follows links, which the keyboard clicks.
    // biome-ignore lint/a11y/noStaticElementInteractions: as above.
    <div class="app" onClick={followLink}>
      <Shell page={page}>{page === undefined ? <NotFound /> : Page === undefined ? null : <Page />}</Shell>
    </div>
  );
}

function NotFound() {
  return (
    <>
      <h1>No such page</h1>
      <p>
        The console has no page at this address. <a href="/console/">Go to the overview.</a>
      </p>
    </>
  );
}
