import { ApiError } from './errors.js';
import type { Management } from './management.js';

/** Refuses the request while performance mode is disabled: audit findings and wiretap need it (D34). */
export async function needPerformanceMode({ performanceMode }: Management): Promise<void> {
  if (!(await performanceMode.read()).enabled) throw new ApiError('performance_mode_disabled');
}
