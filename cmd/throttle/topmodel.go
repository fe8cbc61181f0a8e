package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/fleetthrottle/throttle/redisstore/fleet"
)

// A model is top in a terminal.
type model struct {
	ctx       context.Context
	every     time.Duration
	live      source     // nil: the recording is shown
	recording *recording // all of it has been read
	at        int        // in the recording

	shown  *fleet.Snapshot // as it was read; nil: nothing was yet
	err    error           // why the last one could not be read
	frozen bool            // nothing is read, or played
	sort   string
	filter string
	typing bool // the filter
	help   bool

	width, height, skip int
}

// The messages of a model.
type (
	readMsg struct {
		shown *fleet.Snapshot
		err   error
	}
	tickMsg struct{}
)

func newModel(ctx context.Context, every time.Duration, sort, filter string, live source, recorded *recording) *model {
	m := &model{ctx: ctx, every: every, live: live, recording: recorded, sort: sort, filter: filter, width: 80, height: 24}
	m.step(0)
	return m
}

// Init implements [tea.Model].
func (m *model) Init() tea.Cmd {
	if m.live == nil {
		return m.tick()
	}
	return m.read
}

// read reads the next snapshot.
func (m *model) read() tea.Msg {
	s, err := m.live(m.ctx)
	return readMsg{s, err}
}

func (m *model) tick() tea.Cmd {
	return tea.Tick(m.every, func(time.Time) tea.Msg { return tickMsg{} })
}

// Update implements [tea.Model].
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case readMsg:
		if m.err = msg.err; msg.err == nil {
			m.shown = msg.shown
		}
		return m, m.tick()

	case tickMsg:
		switch {
		case m.frozen:
		case m.live != nil:
			return m, m.read
		default:
			m.step(1)
		}

		return m, m.tick()

	case tea.KeyPressMsg:
		if m.typing {
			m.typeKey(msg)
			return m, nil
		}
		return m, m.key(msg.String())
	}

	return m, nil
}

// step goes on in the recording, or back.
func (m *model) step(by int) {
	if m.live == nil {
		m.at = max(0, min(m.at+by, len(m.recording.places)-1))
		m.shown, m.err = m.recording.at(m.at)
	}
}

// typeKey takes a key of the filter.
func (m *model) typeKey(msg tea.KeyPressMsg) {
	switch msg.String() {
	case "enter":
		m.typing = false
	case "esc", "ctrl+c":
		m.typing, m.filter = false, ""
	case "backspace":
		if all := []rune(m.filter); len(all) > 0 {
			m.filter = string(all[:len(all)-1])
		}

	default:
		m.filter += msg.Text
	}

	m.skip = 0
}

// key takes a key, and returns what to do.
func (m *model) key(key string) tea.Cmd {
	switch key {
	case "q", "ctrl+c":
		return tea.Quit
	case "s":
		m.sort = sorts[(slices.Index(sorts, m.sort)+1)%len(sorts)]
	case "/":
		m.typing, m.filter = true, ""
	case "esc":
		m.filter, m.help = "", false
	case "space", " ":
		m.frozen = !m.frozen
	case "?":
		m.help = !m.help
	case "down", "j":
		m.skip++
	case "up", "k":
		m.skip = max(0, m.skip-1)
	case "pgdown":
		m.skip += max(1, m.height/2)
	case "pgup":
		m.skip = max(0, m.skip-m.height/2)
	case "home", "g":
		m.skip = 0
	case "left", "h":
		m.frozen = true
		m.step(-1)
	case "right", "l":
		m.frozen = true
		m.step(1)
	}

	return nil
}

const helpText = `q       end
s       sort by the next of: %s
/       filter: type a text, enter; esc takes it away
space   stop, and go on
up down pgup pgdown home   scroll
left right   a step in a recording
?       this list`

// The looks of a line. The terminal's profile and NO_COLOR decide what is left of them.
const (
	bold  = "\x1b[1m"
	red   = "\x1b[31m"
	plain = "\x1b[m"
)

// View implements [tea.Model].
func (m *model) View() tea.View {
	v := tea.NewView(strings.Join(m.lines(), "\n"))
	v.AltScreen, v.WindowTitle = true, "throttle top"
	return v
}

// lines are the lines of the screen.
func (m *model) lines() []string {
	head := []string{bold + m.title() + plain}
	if m.err != nil {
		head = append(head, red+fleet.Clean(m.err.Error(), 1000)+plain)
	}

	body := []string{"reading …"}
	switch {
	case m.help:
		body = strings.Split(fmt.Sprintf(helpText, strings.Join(sorts, ", ")), "\n")
	case m.shown != nil:
		body = m.tables()
	}

	room := max(1, m.height-len(head))
	m.skip = max(0, min(m.skip, len(body)-room))
	body = body[m.skip:min(len(body), m.skip+room)]
	all := append(head, body...)
	for i, line := range all {
		all[i] = ansi.Truncate(line, max(1, m.width), "…")
	}

	return all
}

// title says what is shown.
func (m *model) title() string {
	words := []string{"throttle top"}
	if m.shown != nil {
		words = append(words, m.shown.At.UTC().Format("2006-01-02 15:04:05"))
	}
	if m.live == nil {
		words = append(words, fmt.Sprintf("recording %d of %d", m.at+1, len(m.recording.places)))
	}
	if m.frozen {
		words = append(words, "stopped")
	}

	words = append(words, "by "+m.sort)
	switch {
	case m.typing:
		words = append(words, "filter: "+fleet.Clean(m.filter, 100)+"_")
	case m.filter != "":
		words = append(words, "filter: "+fleet.Clean(m.filter, 100))
	}

	return strings.Join(append(words, "? for help"), "  ")
}

// tables are the budgets and who waits for them, then the nodes.
func (m *model) tables() (lines []string) {
	s := *m.shown
	sortAndFilter(&s, m.sort, m.filter)

	v := newView(&s, m.filter, m.shown)
	for _, line := range v.head {
		lines = append(lines, fleet.Clean(line, 1000))
	}

	for i, line := range v.budgets.lines() {
		switch {
		case i == 0:
			line = bold + line + plain
		case v.closed[i-1]:
			line = red + line + plain
		}
		lines = append(lines, line)
	}

	if len(v.shares.rows) > 0 {
		lines = append(lines, "")
	}

	for i, line := range v.shares.lines() {
		switch {
		case len(v.shares.rows) == 0:
			continue
		case i == 0:
			line = bold + line + plain
		}
		lines = append(lines, line)
	}

	lines = append(lines, "")
	for i, line := range v.nodes.lines() {
		switch {
		case i == 0:
			line = bold + line + plain
		case s.Nodes[i-1].Silent || s.Nodes[i-1].File.Err != "":
			line = red + line + plain
		}
		lines = append(lines, line)
	}

	return append(lines, v.foot...)
}
