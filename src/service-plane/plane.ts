import type { Interceptor } from './intercept/interceptor.js';
import type { PlaneContext } from './plane-context.js';
import type { Splices } from './splices.js';

export type Plane = PlaneContext & { readonly interceptor: Interceptor; readonly splices: Splices };
