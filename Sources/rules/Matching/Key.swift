import Bytes

/// Column value for which subscriptions wait, with the nodes (groups of subscriptions) that want it. A key fills one
/// cache line, which includes the value if it is short.
@safe
struct Key: BitwiseCopyable {
    /// Maximum length in bytes of a value inside the key: enough for the 36 characters of a uuid.
    static let inlineBytes = 36

    /// Value, or the address of an allocation that contains it. It is the first field, because the comparison begins at
    /// the key's address.
    private var content: InlineArray<9, UInt32> = InlineArray(repeating: 0)
    let hash: UInt32
    let group: UInt32
    private var length: UInt32
    /// Number of the first link to a node of the key.
    var first: UInt32 = .none
    /// Number of the key's node if it is the only one and the key alone decides the match. No link needs to be read
    /// then.
    var settled: UInt32 = .none
    /// Operations that the node `settled` wants.
    var settledOperations: OperationSet = []
    /// Sole member of the node `settled`; `none` if it has several. The node itself need not be read then.
    var soleMember: UInt32 = .none

    init(hash: UInt32, group: UInt32, _ bytes: RawSpan) {
        self.hash = hash
        self.group = group
        length = UInt32(bytes.byteCount)
        // SAFETY: the words have room for `inlineBytes`, the allocation for all bytes; each is written within that, and
        // the allocation is freed by `free`.
        unsafe bytes.withUnsafeBytes { bytes in
            if bytes.count > Self.inlineBytes {
                let memory = UnsafeMutableRawPointer.allocate(byteCount: bytes.count, alignment: 8)
                unsafe memory.copyMemory(from: bytes.baseAddress.unsafelyUnwrapped, byteCount: bytes.count)
                address = UInt(bitPattern: memory)
            } else {
                unsafe withUnsafeMutableBytes(of: &content) { unsafe $0.copyMemory(from: bytes) }
            }
        }
    }

    /// Address of the allocation in two halves. An element of eight bytes would make the key larger than a cache line.
    private var address: UInt {
        get { UInt(content[0]) | UInt(content[1]) << 32 }
        set {
            content[0] = UInt32(truncatingIfNeeded: newValue)
            content[1] = UInt32(truncatingIfNeeded: newValue >> 32)
        }
    }

    /// True if the key's value has exactly these bytes.
    ///
    /// SAFETY: the caller's pointer is to a key that is in use and does not move meanwhile.
    @inline(__always)
    @unsafe static func equals(_ key: UnsafePointer<Key>, _ bytes: RawSpan) -> Bool {
        // SAFETY: whoever asks keeps the key's slab borrowed.
        guard unsafe bytes.byteCount == Int(key.pointee.length) else { return false }
        // SAFETY: the value's `length` bytes stand in the key's first words or in its allocation.
        let start =
            unsafe bytes.byteCount > inlineBytes
            ? UnsafeRawPointer(bitPattern: key.pointee.address).unsafelyUnwrapped : UnsafeRawPointer(key)
        return unsafe bytes.equals(UnsafeRawBufferPointer(start: start, count: bytes.byteCount).bytes)
    }

    /// Prefetches the value if it is in an allocation.
    @inline(__always)
    func prefetchContent() {
        guard length > Self.inlineBytes else { return }
        // SAFETY: the allocation is not read, only asked for.
        unsafe Prefetch.line(at: UnsafeRawPointer(bitPattern: address).unsafelyUnwrapped)
    }

    /// Frees the allocation, if the key has one.
    mutating func free() {
        if length > Self.inlineBytes {
            // SAFETY: the allocation is this key's own; afterwards the key does not know it any more.
            unsafe UnsafeMutableRawPointer(bitPattern: address).unsafelyUnwrapped.deallocate()
        }
        length = 0
    }
}
