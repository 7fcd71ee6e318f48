import { AsyncResource } from 'node:async_hooks';

type Bindable = Parameters<AsyncResource['runInAsyncScope']>[0];

/**
 * Before 25, Node gives each function that a resource binds a property which is deprecated (DEP0172), by two more functions with
 * prototypes of their own. Node's HTTP/2 binds one for each request, and a third of what a request costs is this property.
 */
export function bindPlainly(): void {
  AsyncResource.prototype.bind = function bind<F extends Bindable>(this: AsyncResource, fn: F, thisArg?: unknown): F {
    return bound(this, fn, thisArg);
  };
}

function bound<F extends Bindable>(resource: AsyncResource, fn: F, its: unknown): F {
  const run = function (this: unknown, ...args: readonly unknown[]): unknown {
    return resource.runInAsyncScope(fn, its ?? this, ...args);
  };
  return run as F;
}
