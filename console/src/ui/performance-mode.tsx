import { api, bodyOf } from '../api/client.js';
import { node } from '../node.js';
import { useAction } from './action.js';
import { Failure } from './parts.js';
import { WriteButton } from './write.js';

/** A button that enables performance mode. `onEnabled` is called after the node has enabled it. */
export function EnablePerformanceMode({ onEnabled }: { readonly onEnabled?: () => void }) {
  const action = useAction();
  const enable = async () => {
    await bodyOf(api.PUT('/api/v1/settings/performance-mode', { body: { enabled: true } }));
    node.changed();
    onEnabled?.();
  };
  return (
    <>
      <WriteButton primary isBusy={action.isBusy.value} onClick={() => void action.run(enable)}>
        Switch it on
      </WriteButton>
      <Failure failure={action.failure.value} />
    </>
  );
}
