#if canImport(Glibc)
    import Glibc
#endif

extension RawSpan {
    /// Returns the byte at an offset, which must lie inside the span.
    @inlinable
    public func byte(_ offset: Int) -> UInt8 {
        precondition(offset >= 0 && offset < byteCount, "a byte outside the span")
        // SAFETY: checked in the line above.
        return unsafe unsafeLoad(fromUncheckedByteOffset: offset, as: UInt8.self)
    }

    /// Bytes decoded as UTF-8. Invalid sequences become the replacement character.
    public var text: String {
        // SAFETY: the buffer is used inside the closure only; String copies it.
        unsafe withUnsafeBytes { unsafe String(decoding: $0, as: UTF8.self) }
    }

    public func copied() -> [UInt8] {
        // SAFETY: the buffer is used inside the closure only; Array copies it.
        unsafe withUnsafeBytes { unsafe Array($0) }
    }

    @inlinable
    public func equals(_ other: RawSpan) -> Bool {
        guard byteCount == other.byteCount else { return false }
        // SAFETY: both buffers are valid inside the closures and equally long.
        return unsafe withUnsafeBytes { left in
            unsafe other.withUnsafeBytes { right in
                guard let a = left.baseAddress, let b = right.baseAddress else { return true }
                return unsafe memcmp(a, b, left.count) == 0
            }
        }
    }

    public func equals(_ text: StaticString) -> Bool {
        guard byteCount == text.utf8CodeUnitCount else { return false }
        // SAFETY: a static string's UTF-8 lives as long as the program and has `byteCount` bytes.
        return unsafe withUnsafeBytes { left in
            guard let a = left.baseAddress else { return true }
            return unsafe memcmp(a, text.utf8Start, left.count) == 0
        }
    }

    /// Compares lexicographically: below zero if these bytes come before `other`, zero if equal, above zero if after.
    public func order(_ other: RawSpan) -> Int {
        // SAFETY: both buffers are valid inside the closures and have at least `shared` bytes.
        let order = unsafe withUnsafeBytes { left in
            unsafe other.withUnsafeBytes { right in
                let shared = min(left.count, right.count)
                guard shared > 0, let a = left.baseAddress, let b = right.baseAddress else { return 0 }
                return unsafe Int(memcmp(a, b, shared))
            }
        }
        return order == 0 ? byteCount - other.byteCount : order
    }
}
