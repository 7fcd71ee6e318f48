import { afterAll, beforeAll, expect, it } from 'vitest';
import { ChurnRig, FAULTS, type LifeSample } from '#test/kubernetes/churn-rig.js';
import { HAS_KUBE_API, HAS_MACHINERY, type KubeServer } from '#test/kubernetes/kube-api.js';
import { Random, seedOf } from '#test/seed.js';
import { skipUnless } from '#test/skip-unless.js';

/** For how many minutes the trial makes random changes of Kubernetes objects. */
const MINUTES = Number(process.env.WEIR_MINUTES ?? 2);
/** `WEIR_API_SERVER=api-machinery` selects a server of the current Kubernetes libraries. */
const API_SERVER: KubeServer = process.env.WEIR_API_SERVER === 'api-machinery' ? 'api-machinery' : 'kube-apiserver';
const IS_BUILT = API_SERVER === 'api-machinery' ? HAS_MACHINERY : HAS_KUBE_API;
const EVENTS_A_ROUND = [10, 60] as const;
/**
 * The bounds on the growth of a process in MiB and descriptors. Samples are taken while no change is under
 * way. The heap varies, so the least sample of the last third is compared with that of the middle third.
 */
const [MORE_MIB, MORE_DESCRIPTORS] = [25, 6];
const FEWEST_SAMPLES = 9;

skipUnless(IS_BUILT, `the server is not built: npm run ${API_SERVER}`).describe(
  `a running node that follows a real API server: ${API_SERVER}`,
  () => {
    const random = new Random(seedOf(Date.now() % 1_000_000));
    let rig: ChurnRig;
    beforeAll(async () => {
      rig = await ChurnRig.start(random, API_SERVER);
    }, 120_000);
    afterAll(() => rig?.remove());

    it('a node that follows a real API server selects the pods that kubectl prints, in the API, the kernel, the DNS proxy and the service plane', {
      timeout: (MINUTES + 5) * 60_000,
    }, async () => {
      const until = Date.now() + MINUTES * 60_000;
      let rounds = 0;
      try {
        await rig.agree('the start');
        rig.sentinels.begin();
        for (; Date.now() < until; rounds++) {
          // Only the first half of the time has faults that end the node, so that a leak shows in the memory
          // of the last process.
          const isFirstHalf = until - Date.now() > MINUTES * 30_000;
          const fault = FAULTS[rounds] ?? random.pick(FAULTS.filter((each) => isFirstHalf || !each.startsWith('node')));
          await rig.round(fault, random.between(...EVENTS_A_ROUND));
        }
      } finally {
        await rig.sentinels.end();
        show(`seed ${random.seed}, ${rounds} rounds, ${rig.churn.events} events, ${rig.shown}`);
      }
      const { sent, lost, passed } = rig.sentinels;
      show(`${sent} datagrams of each fixed flow; lost: ${JSON.stringify(lost)}; passed: ${passed.length}`);
      for (const life of rig.lives) show(`process: ${textOf(life)}`);
      expect([passed, lost]).toEqual([[], {}]);
      for (const life of rig.lives.filter(({ length }) => length >= FEWEST_SAMPLES)) {
        const third = Math.floor(life.length / 3);
        const growth = (of: keyof LifeSample) => least(life.slice(-third), of) - least(life.slice(third, -third), of);
        expect(growth('mib')).toBeLessThanOrEqual(MORE_MIB);
        expect(growth('descriptors')).toBeLessThanOrEqual(MORE_DESCRIPTORS);
      }
    });
  },
);

const least = (life: readonly LifeSample[], of: keyof LifeSample) => Math.min(...life.map((sample) => sample[of]));
const show = (text: string): boolean => process.stdout.write(`kubernetes-churn: ${text}\n`);
const textOf = (life: readonly LifeSample[]): string =>
  life.map(({ mib, descriptors }) => `${Math.round(mib)} MiB ${descriptors} fds`).join(', ');
