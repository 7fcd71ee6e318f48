import { ApiError } from '#api/errors/errors.js';
import type { Management } from '#api/management.js';

/**
 * Throws `performance_mode_disabled` if performance mode is disabled. Routes for findings and for the wiretap
 * call this function first (D34).
 */
export async function needPerformanceMode({ performanceMode }: Management): Promise<void> {
  if (!(await performanceMode.read()).enabled) throw new ApiError('performance_mode_disabled');
}
