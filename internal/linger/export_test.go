package linger

// Len returns how many budgets are remembered.
func (all *Budgets) Len() int { return len(all.all) }
