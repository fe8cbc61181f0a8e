package throttle

import "time"

// A Hold says how long a caller was held, and what held it last.
type Hold struct {
	Duration time.Duration // how long Acquire took, and Renew; 0: not worth telling
	Policy   string        // "": no policy held it
	Paused   bool          // that policy's budget was closed, by a penalty or by hand; else it was full
	Note     PauseNote     // what the operator said who closed it; zero: nothing is known
}
