package filestore

// A machine is what the programs of one machine have in common.
type machine interface {
	// boot returns what no other boot of any machine is called.
	boot() (string, error)

	// clock returns the microseconds since the boot, suspended ones too, which no setting of the
	// clock changes, and those of the wall clock since the Unix epoch.
	clock() (sinceBoot, wall int64, err error)
}

// drift is by how many microseconds the wall clock has to be ahead to be followed: the clocks are
// read one after the other, and disciplined with small differences.
const drift = 100_000
