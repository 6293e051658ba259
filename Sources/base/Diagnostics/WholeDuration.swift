extension Duration {
    /// Nanoseconds of the duration, as a whole number. The duration must not be negative.
    public var wholeNanoseconds: UInt64 {
        UInt64(components.seconds) * 1_000_000_000 + UInt64(components.attoseconds / 1_000_000_000)
    }
    public var wholeMilliseconds: Int { Int(wholeNanoseconds / 1_000_000) }
    /// Whole seconds of the duration, but at least one.
    public var wholeSeconds: Int { max(1, Int(components.seconds)) }
}
