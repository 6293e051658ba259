import Bytes

/// Table of rows by key, kept in a few large arrays of bytes. Each row needs its own bytes and about seventy more.
///
/// Keys and row images are opaque bytes. An entry has a key, and either a row or only a record about the key. An
/// entry's number stays the same until the entry is removed.
struct CompactRows {
    /// Data about a row, besides its key and its image.
    struct Facts {
        var offset: UInt64
        /// Position among the rows with the same log offset.
        var order: UInt32 = 0
        /// Number of gaps in the log before this row version.
        var gaps: UInt32
        /// Number that the caller gave to the schema of the image.
        var relation: UInt32
        var witness = RowAsOf.Witness.change
    }

    private struct Entry {
        var facts = Facts(offset: 0, gaps: 0, relation: 0)
        var piece: UInt32 = 0
        /// Offset of the key in the array of its piece. The image follows the key.
        var start: UInt32 = 0
        var keyCount: UInt32 = 0
        var imageCount: UInt32 = 0
        /// Upper half of the key's hash, compared before the keys themselves.
        var tag: UInt32 = 0
        /// Number of gaps, plus one, at which the row of this key was deleted or got another key; 0 if neither
        /// happened.
        var gone: UInt32 = 0
        var isUsed = false
        var hasRow = false
        var isSettled = false
    }

    /// Array of bytes for keys and images. Each pair has a head before it: its entry's number and the number of
    /// reserved bytes.
    private struct Piece {
        var bytes: [UInt8] = []
        /// Number of bytes that entries use, with their heads.
        var used = 0

        mutating func append(_ span: RawSpan) {
            // SAFETY: the array copies the span's bytes inside the closure.
            unsafe span.withUnsafeBytes { unsafe bytes.append(contentsOf: $0) }
        }
    }

    private static let pieceBytes = 1 << 20
    private static let headBytes = 8
    private static let blockBits = 14

    private var blocks: [[Entry]] = []
    private var entries = 0
    private var free: [UInt32] = []
    /// Hash table of the keys: each element is an entry's number plus one, or 0 if it is empty. Its size is a power of
    /// two.
    private var slots = [UInt32](repeating: 0, count: 1024)
    private var pieces = [Piece()]
    /// Index of the piece to which new entries are added.
    private var current = 0
    /// Indexes of the pieces that have no memory and can be used again.
    private var emptyPieces: [Int] = []
    private let hash = SipHash(key: (UInt64.random(in: 0 ... .max), UInt64.random(in: 0 ... .max)))

    private(set) var rowCount = 0
    /// Number of entries that have a key but no row.
    var noteCount: Int { entries - free.count - rowCount }

    // MARK: Entries

    private func entry(_ number: Int) -> Entry { blocks[number >> Self.blockBits][number & (1 << Self.blockBits - 1)] }

    private mutating func change(_ number: Int, _ body: (inout Entry) -> Void) {
        body(&blocks[number >> Self.blockBits][number & (1 << Self.blockBits - 1)])
    }

    /// Returns the number of the entry with this key; nil if there is none.
    func find(_ key: RawSpan) -> Int? { find(key, hash.hash(key)) }

    private func find(_ key: RawSpan, _ hash: UInt64) -> Int? {
        let mask = slots.count - 1
        var slot = Int(truncatingIfNeeded: hash) & mask
        let tag = UInt32(truncatingIfNeeded: hash >> 32)
        while slots[slot] != 0 {
            let number = Int(slots[slot] - 1)
            let entry = entry(number)
            if entry.tag == tag, Int(entry.keyCount) == key.byteCount, self.key(entry, equals: key) { return number }
            slot = (slot + 1) & mask
        }
        return nil
    }

    private func key(_ entry: Entry, equals key: RawSpan) -> Bool {
        let (bytes, start) = (pieces[Int(entry.piece)].bytes, Int(entry.start))
        return bytes.rawBytes.extracting(start..<start + Int(entry.keyCount)).equals(key)
    }

    /// Returns a copy of the key of an entry.
    func key(of number: Int) -> [UInt8] {
        let entry = entry(number)
        let start = Int(entry.start)
        return Array(pieces[Int(entry.piece)].bytes[start..<start + Int(entry.keyCount)])
    }

    /// Returns a copy of the image of a row.
    func image(of number: Int) -> [UInt8] {
        let entry = entry(number)
        assert(entry.hasRow, "only rows have images")
        let start = Int(entry.start + entry.keyCount)
        return Array(pieces[Int(entry.piece)].bytes[start..<start + Int(entry.imageCount)])
    }

    /// Returns the data of the entry's row; nil if the entry has only a key.
    func facts(of number: Int) -> Facts? {
        let entry = entry(number)
        return entry.hasRow ? entry.facts : nil
    }

    /// True if the row of this entry's key was deleted or got another key since the last gap.
    func isGone(_ number: Int, gaps: Int) -> Bool { Int(entry(number).gone) == gaps + 1 }
    /// True if a change of this key after the reconstructed position was read.
    func isSettled(_ number: Int) -> Bool { entry(number).isSettled }

    /// Numbers of the entries that have a row, in the order of the rows' log offsets.
    var ordered: [UInt32] {
        var found: [(offset: UInt64, order: UInt32, number: UInt32)] = []
        found.reserveCapacity(rowCount)
        for number in 0..<entries {
            let entry = entry(number)
            if entry.hasRow { found.append((entry.facts.offset, entry.facts.order, UInt32(number))) }
        }
        found.sort { ($0.offset, $0.order) < ($1.offset, $1.order) }
        return found.map(\.number)
    }

    /// Calls `body` with the number of each entry that has a row.
    func forEachRow<E: Error>(_ body: (Int) throws(E) -> Void) throws(E) {
        for number in 0..<entries where entry(number).hasRow { try body(number) }
    }

    // MARK: Changes

    /// Stores a row, and replaces the row with the same key.
    mutating func set(_ key: RawSpan, _ image: RawSpan, _ facts: Facts) {
        let hash = hash.hash(key)
        if let number = find(key, hash) {
            var entry = entry(number)
            if !entry.hasRow { rowCount += 1 }
            (entry.facts, entry.hasRow, entry.gone) = (facts, true, 0)
            let start = Int(entry.start)
            if key.byteCount + image.byteCount <= reserved(entry) {
                write(image, at: start + key.byteCount, in: Int(entry.piece))
                entry.imageCount = UInt32(image.byteCount)
                change(number) { $0 = entry }
                return
            }
            release(entry)
            place(&entry, key, image, number)
            change(number) { $0 = entry }
            return tidyUp()
        }
        var entry = Entry()
        (entry.facts, entry.hasRow) = (facts, true)
        rowCount += 1
        add(&entry, key, image, hash)
    }

    /// Removes the row of an entry. Removes the entry too, unless something is recorded about its key.
    mutating func removeRow(_ number: Int) {
        guard entry(number).hasRow else { return }
        rowCount -= 1
        change(number) { ($0.hasRow, $0.imageCount) = (false, 0) }
        let entry = entry(number)
        if entry.gone == 0, !entry.isSettled { remove(number) }
    }

    /// Records that the row of this key was deleted or got another key. It counts until the next gap in the log.
    mutating func note(gone key: RawSpan, gaps: Int) {
        let number = find(key) ?? add(key)
        change(number) { $0.gone = UInt32(gaps) + 1 }
    }

    /// Records that the first change of this key after the reconstructed position was read. Returns false if that was
    /// already recorded.
    mutating func note(settled key: RawSpan) -> Bool {
        let number = find(key) ?? add(key)
        guard !entry(number).isSettled else { return false }
        change(number) { $0.isSettled = true }
        return true
    }

    mutating func removeAll() { self = CompactRows() }

    /// Removes the entries that only record a deleted or changed key.
    mutating func forgetGone() {
        for number in 0..<entries {
            let entry = entry(number)
            if entry.isUsed, !entry.hasRow, !entry.isSettled { remove(number) }
        }
    }

    private mutating func add(_ key: RawSpan) -> Int {
        var entry = Entry()
        return add(&entry, key, RawSpan(), hash.hash(key))
    }

    @discardableResult
    private mutating func add(_ entry: inout Entry, _ key: RawSpan, _ image: RawSpan, _ hash: UInt64) -> Int {
        let number: Int
        if let known = free.popLast() {
            number = Int(known)
        } else {
            number = entries
            precondition(number < Int(UInt32.max) - 1, "entries are numbered in 32 bits")
            if number & (1 << Self.blockBits - 1) == 0 {
                blocks.append([])
                blocks[blocks.count - 1].reserveCapacity(1 << Self.blockBits)
            }
            blocks[number >> Self.blockBits].append(Entry())
            entries += 1
        }
        (entry.tag, entry.isUsed) = (UInt32(truncatingIfNeeded: hash >> 32), true)
        place(&entry, key, image, number)
        let added = entry
        change(number) { $0 = added }
        if (entries - free.count) * 4 > slots.count * 3 { grow() } else { enter(number, hash) }
        tidyUp()
        return number
    }

    /// Enters an entry's number into the hash table.
    private mutating func enter(_ number: Int, _ hash: UInt64) {
        let mask = slots.count - 1
        var slot = Int(truncatingIfNeeded: hash) & mask
        while slots[slot] != 0 { slot = (slot + 1) & mask }
        slots[slot] = UInt32(number) + 1
    }

    private func hash(of number: Int) -> UInt64 {
        let entry = entry(number)
        let (bytes, start) = (pieces[Int(entry.piece)].bytes, Int(entry.start))
        return hash.hash(bytes.rawBytes.extracting(start..<start + Int(entry.keyCount)))
    }

    private mutating func grow() {
        slots = [UInt32](repeating: 0, count: slots.count * 2)
        for number in 0..<entries where entry(number).isUsed { enter(number, hash(of: number)) }
    }

    private mutating func remove(_ number: Int) {
        let mask = slots.count - 1
        var hole = Int(truncatingIfNeeded: hash(of: number)) & mask
        while slots[hole] != UInt32(number) + 1 { hole = (hole + 1) & mask }
        // Moves later elements into the empty one, except those that would then precede the place of their hash.
        var next = (hole + 1) & mask
        while slots[next] != 0 {
            let home = Int(truncatingIfNeeded: hash(of: Int(slots[next] - 1))) & mask
            if (next &- home) & mask >= (next &- hole) & mask {
                slots[hole] = slots[next]
                hole = next
            }
            next = (next + 1) & mask
        }
        slots[hole] = 0
        release(entry(number))
        change(number) { $0 = Entry() }
        free.append(UInt32(number))
        tidyUp()
    }

    // MARK: Memory

    private func number(in piece: Int, at place: Int) -> Int {
        (0..<4).reduce(0) { $0 | Int(pieces[piece].bytes[place + $1]) << (8 * $1) }
    }

    /// Number of bytes that are reserved for the entry's key and image.
    private func reserved(_ entry: Entry) -> Int { number(in: Int(entry.piece), at: Int(entry.start) - 4) }

    private mutating func release(_ entry: Entry) {
        pieces[Int(entry.piece)].used -= reserved(entry) + Self.headBytes
    }

    private mutating func write(_ bytes: RawSpan, at start: Int, in piece: Int) {
        precondition(start >= 0 && start + bytes.byteCount <= pieces[piece].bytes.count, "a row stays in its place")
        // SAFETY: the range lies in the array, by the line above, and the span's bytes are elsewhere.
        unsafe pieces[piece].bytes.withUnsafeMutableBytes { target in
            unsafe bytes.withUnsafeBytes { source in
                unsafe UnsafeMutableRawBufferPointer(rebasing: target[start..<start + source.count])
                    .copyMemory(from: source)
            }
        }
    }

    /// Writes key and image to the piece to which new entries are added.
    private mutating func place(_ entry: inout Entry, _ key: RawSpan, _ image: RawSpan, _ number: Int) {
        let count = key.byteCount + image.byteCount
        if !pieces[current].bytes.isEmpty, pieces[current].bytes.count + Self.headBytes + count > Self.pieceBytes {
            current = emptyPieces.popLast() ?? pieces.count
            if current == pieces.count { pieces.append(Piece()) }
        }
        let piece = current
        if pieces[piece].bytes.isEmpty {
            pieces[piece].bytes.reserveCapacity(max(Self.pieceBytes, count + Self.headBytes))
        }
        for word in [UInt32(number), UInt32(count)] {
            for shift in 0..<4 { pieces[piece].bytes.append(UInt8(truncatingIfNeeded: word >> UInt32(8 * shift))) }
        }
        entry.piece = UInt32(piece)
        entry.start = UInt32(pieces[piece].bytes.count)
        (entry.keyCount, entry.imageCount) = (UInt32(key.byteCount), UInt32(image.byteCount))
        pieces[piece].append(key)
        pieces[piece].append(image)
        pieces[piece].used += count + Self.headBytes
    }

    /// Index of the piece that `tidyUp` examined last. Each call examines the next one.
    private var search = 0

    /// Examines one piece. If less than two thirds of its bytes are in use, moves its entries to another piece.
    private mutating func tidyUp() {
        search = search + 1 < pieces.count ? search + 1 : 0
        let piece = search
        guard piece != current, !pieces[piece].bytes.isEmpty, pieces[piece].used * 3 < pieces[piece].bytes.count * 2
        else { return }
        let old = pieces[piece]
        pieces[piece] = Piece()
        var place = 0
        while place < old.bytes.count {
            func word(_ at: Int) -> Int { (0..<4).reduce(0) { $0 | Int(old.bytes[at + $1]) << (8 * $1) } }
            let (number, count) = (word(place), word(place + 4))
            let start = place + Self.headBytes
            place = start + count
            guard number < entries else { continue }
            var entry = entry(number)
            guard entry.isUsed, entry.piece == UInt32(piece), entry.start == UInt32(start) else { continue }
            let image = start + Int(entry.keyCount)
            self.place(
                &entry, old.bytes.rawBytes.extracting(start..<image),
                old.bytes.rawBytes.extracting(image..<image + Int(entry.imageCount)), number)
            let moved = entry
            change(number) { $0 = moved }
        }
        emptyPieces.append(piece)
    }
}
