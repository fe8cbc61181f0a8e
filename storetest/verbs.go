package storetest

import "github.com/fleetthrottle/throttle"

// A verb is what a move does, what it is about, and what it expects.
type verb struct {
	run   func(*play, *move)
	needs string
	wants int
}

// verbs are all moves; vectors/README.md describes them.
var verbs map[string]verb

func init() {
	verbs = map[string]verb{
		"at":   {(*play).passes, "time", nothing},
		"wait": {(*play).passes, "time", nothing},

		"book":    {(*play).books, "charge", answers},
		"try":     {(*play).books, "charge", answers},
		"again":   {each((*play).bookAgain), "caller", answers},
		"board":   {each((*play).boards), "caller", nothing},
		"cancel":  {each((*play).cancel), "caller", nothing},
		"release": {each((*play).release), "caller", nothing},
		"settle":  {each((*play).settles), "caller number", nothing},
		"called":  {each((*play).isCalled), "caller", nothing},
		"waits":   {each((*play).isWaiting), "caller", nothing},

		"pause":  {budget((*play).pauses), "charge time", nothing},
		"resume": {budget((*play).resumes), "charge", nothing},
		"refuse": {budget((*play).refuse), "charge", levels},
		"states": {budget((*play).isTold), "charge number", nothing},
		"status": {budget((*play).isStatus), "charge", statuses},
		"shows":  {budget((*play).isStatus), "charge", statuses},

		"watch":   {(*play).watches, "who", guesses},
		"move":    {each((*play).moveOn), "caller", answers},
		"stop":    {each((*play).stop), "caller", nothing},
		"good":    {each((*play).isGood), "caller", nothing},
		"bad":     {each((*play).isBad), "caller", nothing},
		"useless": {each((*play).isUseless), "caller", nothing},
		"quiet":   {each((*play).isQuiet), "caller", nothing},
		"deaf":    {each((*play).watchDeaf), "caller", nothing},

		"come":    {(*play).come, "who", guesses},
		"leave":   {each((*play).leave), "caller", nothing},
		"change":  {each((*play).change), "caller charge", nothing},
		"return":  {each((*play).comeBack), "caller", nothing},
		"begin":   {(*play).isBegun, "caller", answers},
		"set":     {(*play).isSet, "caller", answers},
		"over":    {(*play).isOver, "caller time", nothing},
		"order":   {(*play).isInOrder, "caller", nothing},
		"busy":    {budget((*play).isBusy), "charge", nothing},
		"gapless": {(*play).isGapless, "charge caller time", nothing},
		"near":    {(*play).isNear, "caller number", nothing},

		"crowd":  {(*play).crowd, "charge", guesses},
		"ride":   {(*play).ride, "charge", nothing},
		"queue":  {(*play).queue, "charge", answers},
		"steady": {(*play).steady, "charge", nothing},
	}
}

// each does something for each caller that a move is about.
func each(do func(*play, *move, *caller)) func(*play, *move) {
	return func(p *play, m *move) {
		p.Helper()
		for _, c := range p.of(m) {
			do(p, m, c)
		}
		p.calm()
	}
}

// budget does something for each budget that a move is about.
func budget(do func(*play, *move, throttle.Charge)) func(*play, *move) {
	return func(p *play, m *move) {
		p.Helper()
		for _, c := range m.charges {
			do(p, m, c)
		}
		p.calm()
	}
}
