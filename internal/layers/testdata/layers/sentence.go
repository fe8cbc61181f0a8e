package layers

type sentence []word
