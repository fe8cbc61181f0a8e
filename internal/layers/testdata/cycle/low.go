package cycle

// Low names what stands above it, once by a function and once by a field.
func Low() int { return high().field + high().field }
