/** The sentence about stored policies while the kernel enforces another generation. */
export const notInForce = (generation: number): string =>
  `the active policy is not in force: the kernel enforces generation ${generation}, and the data folder is an older or another one; see \`weir status\``;
