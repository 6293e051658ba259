extension Array where Element == UInt8 {
    /// Bytes of the array, read in place.
    @inlinable public var rawBytes: RawSpan {
        @_lifetime(borrow self)
        get {
            // SAFETY: any byte is a valid UInt8, and the span borrows the array.
            unsafe span.bytes
        }
    }
}
