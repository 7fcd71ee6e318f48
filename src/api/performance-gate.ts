import { ApiError } from './errors.js';
import type { Management } from './management.js';

/** Audit findings and wiretap are there only while performance mode is enabled (D34). */
export async function needPerformanceMode({ performanceMode }: Management): Promise<void> {
  if (!(await performanceMode.read()).enabled) throw new ApiError('performance_mode_disabled');
}
