extension Duration {
    /// Of a duration that is not negative.
    public var wholeNanoseconds: UInt64 {
        UInt64(components.seconds) * 1_000_000_000 + UInt64(components.attoseconds / 1_000_000_000)
    }
    public var wholeMilliseconds: Int { Int(wholeNanoseconds / 1_000_000) }
    /// At least one.
    public var wholeSeconds: Int { max(1, Int(components.seconds)) }
}
