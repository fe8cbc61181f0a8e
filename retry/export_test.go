package retry

// DrainTime is for tests.
const DrainTime = drainTime
