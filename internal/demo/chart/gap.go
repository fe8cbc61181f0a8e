package chart

// gapSlots is how many seconds' room a longer gap takes.
const gapSlots = 4

// holds reports whether a second lies in the gap.
func (g Gap) holds(second int) bool { return second >= g.From && second < g.To }

// drawn is how many seconds' room the gap takes.
func (g Gap) drawn() int { return min(g.To-g.From, gapSlots) }

// slots is for how many seconds the time axis has room.
func (p *picture) slots() float64 {
	return float64(p.seconds - (p.gap.To - p.gap.From) + p.gap.drawn())
}

// slot is the room of one second.
func (p *picture) slot() float64 { return plotWidth / p.slots() }

// x is where a second begins that does not lie in the gap.
func (p *picture) x(second int) float64 {
	if second >= p.gap.To {
		second += p.gap.drawn() - (p.gap.To - p.gap.From)
	}
	return left + p.slot()*float64(second)
}

// labelled reports whether a second has a number below it: one in every, counted
// anew behind the gap.
func (p *picture) labelled(second, every int) bool {
	switch {
	case p.gap.holds(second):
		return false
	case second >= p.gap.To:
		second -= p.gap.To
	}
	return second%every == 0
}

// silence draws the gap.
func (p *picture) silence() {
	if p.gap.To <= p.gap.From {
		return
	}
	from, wide := p.x(p.gap.From-1)+p.slot(), float64(p.gap.drawn())*p.slot()
	p.printf("<rect class=\"gap\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n", from, top, wide, plotHeight)
	p.text(from+wide/2, top+plotHeight/2, "mark", "middle", p.gap.Name)
}
