package store

// LimitForms is what ParseLimit says it understands.
const LimitForms = limitForms
