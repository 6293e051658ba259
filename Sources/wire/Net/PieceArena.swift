import Bytes
import Diagnostics

/// Bytes to send, which several connections may share: an index into the loop's arena, valid until the turn ends.
public struct Piece: Sendable, Equatable {
    let index: UInt32
}

/// Memory for everything that a loop sends: reference-counted chunks that are filled one after the other.
///
/// A piece is valid for one turn. A blocked connection keeps its pieces by retaining their chunk. So a frame for ten
/// thousand connections is in memory once, even if some of them are slow. Pieces that are added one after the other are
/// neighbours in memory, so one call can send them together without a copy.
@safe
final class PieceArena {
    /// Range of bytes in a chunk of memory.
    struct Extent {
        var chunk: UInt32
        var offset: UInt32
        var length: UInt32
    }

    @safe
    private struct Chunk: BitwiseCopyable {
        /// Memory of the chunk; nil if this element of `chunks` is not in use.
        var base: UnsafeMutableRawPointer?
        var capacity: Int
        /// Number of backlog entries whose bytes lie in the chunk. While there are some, the chunk is not freed.
        var retains = 0
        /// True if pieces of this turn lie in the chunk, or if the next pieces will be written to it.
        var isInTurn = false
    }

    private let chunkBytes: Int
    private let chunks = PlainArray<Chunk>()
    /// Indexes of the elements of `chunks` that have no memory.
    private var unused: [UInt32] = []
    /// Indexes of empty chunks of the usual size, kept for reuse.
    private var spare: [UInt32] = []
    /// Indexes of the chunks that contain pieces of this turn.
    private var ofThisTurn: [UInt32] = []
    /// Index of the chunk to which the next piece is written; nil if there is none yet.
    private var current: UInt32?
    /// Number of bytes used in the chunk with index `current`.
    private var used = 0
    private let pieces = PlainArray<Extent>(capacity: 256)
    /// Number of bytes of all chunks except the spare ones.
    private(set) var heldBytes = 0
    /// Number of bytes of all pieces of this turn.
    private(set) var turnBytes = 0

    init(chunkBytes: Int = Limits.pieceChunkBytes) { self.chunkBytes = chunkBytes }

    deinit {
        // SAFETY: each chunk's memory is freed once; nobody has extents of an arena that is gone.
        for index in 0..<chunks.count { unsafe chunks[index].base?.deallocate() }
    }

    // MARK: Pieces of this turn

    func add(_ bytes: RawSpan) -> Piece {
        precondition(bytes.byteCount <= Limits.maximumPieceBytes, "a piece is at most as large as its limit")
        let piece = Piece(index: UInt32(pieces.count))
        pieces.append(copy(bytes))
        return piece
    }

    /// Adds one piece, made of three consecutive parts. Each part is copied only once.
    func add(_ head: RawSpan, _ body: RawSpan, _ tail: RawSpan) -> Piece {
        let length = head.byteCount + body.byteCount + tail.byteCount
        precondition(length <= Limits.maximumPieceBytes, "a piece is at most as large as its limit")
        let piece = Piece(index: UInt32(pieces.count))
        var extent = room(for: length)
        pieces.append(extent)
        put(head, &extent)
        put(body, &extent)
        put(tail, &extent)
        return piece
    }

    /// Returns the range of memory in which a piece lies.
    @inline(__always)
    func extent(of piece: UInt32) -> Extent { pieces[Int(piece)] }

    func isValid(_ piece: Piece) -> Bool { Int(piece.index) < pieces.count }

    @inline(__always)
    func address(of extent: Extent) -> UnsafeMutableRawPointer {
        // SAFETY: extents are only made by `copy` and `retainedCopy`, inside their chunk.
        guard let base = unsafe chunks[Int(extent.chunk)].base else { preconditionFailure("a chunk in use has memory") }
        return unsafe base + Int(extent.offset)
    }

    private func copy(_ bytes: RawSpan) -> Extent {
        let extent = room(for: bytes.byteCount)
        var rest = extent
        put(bytes, &rest)
        return extent
    }

    private func room(for length: Int) -> Extent {
        turnBytes += length
        let chunk = chunkWithRoom(for: length)
        defer { used += length }
        return Extent(chunk: chunk, offset: UInt32(used), length: UInt32(length))
    }

    /// Copies bytes to the beginning of `rest`, which then shrinks to the memory after them.
    private func put(_ bytes: RawSpan, _ rest: inout Extent) {
        precondition(bytes.byteCount <= Int(rest.length), "room was made for all of it")
        // SAFETY: the chunk has room for the extent, which is at least as long as the bytes.
        unsafe bytes.withUnsafeBytes { source in
            if let start = source.baseAddress {
                unsafe address(of: rest).copyMemory(from: start, byteCount: source.count)
            }
        }
        rest.offset += UInt32(bytes.byteCount)
        rest.length -= UInt32(bytes.byteCount)
    }

    private func chunkWithRoom(for length: Int) -> UInt32 {
        if let current, chunks[Int(current)].capacity - used >= length { return current }
        let chunk = takeChunk(atLeast: length)
        chunks[Int(chunk)].isInTurn = true
        current = chunk
        used = 0
        ofThisTurn.append(chunk)
        return chunk
    }

    private func takeChunk(atLeast length: Int) -> UInt32 {
        if length <= chunkBytes, let chunk = spare.popLast() {
            heldBytes += chunkBytes
            return chunk
        }
        return newChunk(max(length, chunkBytes))
    }

    private func newChunk(_ capacity: Int) -> UInt32 {
        heldBytes += capacity
        // SAFETY: freed by `freeIfUnused` or `deinit`.
        let chunk = unsafe Chunk(base: .allocate(byteCount: capacity, alignment: 16), capacity: capacity)
        if let index = unused.popLast() {
            chunks[Int(index)] = chunk
            return index
        }
        chunks.append(chunk)
        return UInt32(chunks.count - 1)
    }

    /// Invalidates all pieces and frees the chunks that no backlog retains.
    func endTurn() {
        guard !pieces.isEmpty else { return }
        pieces.removeAll(keeping: 1 << 16)
        turnBytes = 0
        if let last = current, chunks[Int(last)].capacity > chunkBytes { current = nil }
        for chunk in ofThisTurn where chunk != current {
            chunks[Int(chunk)].isInTurn = false
            freeIfUnused(chunk)
        }
        ofThisTurn.removeAll(keepingCapacity: true)
        guard let current else { return }
        ofThisTurn.append(current)
        // A retained chunk is filled further, so that one small blocked frame does not hold a whole chunk.
        if chunks[Int(current)].retains == 0 { used = 0 }
    }

    // MARK: Memory that blocked connections keep

    func retain(_ chunk: UInt32) { chunks[Int(chunk)].retains += 1 }

    func release(_ chunk: UInt32) {
        precondition(chunks[Int(chunk)].retains > 0, "only what was retained can be released")
        chunks[Int(chunk)].retains -= 1
        if !chunks[Int(chunk)].isInTurn { freeIfUnused(chunk) }
    }

    /// Returns a retained copy of a range, in memory of exactly its size. It replaces the range when a backlog is
    /// dropped.
    func retainedCopy(of extent: Extent) -> Extent {
        let chunk = newChunk(max(Int(extent.length), 1))
        let copy = Extent(chunk: chunk, offset: 0, length: extent.length)
        // SAFETY: the new chunk is as long as the extent, which lies in a chunk that is still retained.
        unsafe address(of: copy).copyMemory(from: address(of: extent), byteCount: Int(extent.length))
        retain(chunk)
        return copy
    }

    private func freeIfUnused(_ chunk: UInt32) {
        guard chunks[Int(chunk)].retains == 0 else { return }
        let capacity = chunks[Int(chunk)].capacity
        heldBytes -= capacity
        if capacity == chunkBytes, spare.count < Limits.sparePieceChunks {
            spare.append(chunk)
        } else {
            // SAFETY: nobody retains it and no piece of this turn lies in it; it is forgotten at once.
            unsafe chunks[Int(chunk)].base?.deallocate()
            unsafe chunks[Int(chunk)].base = nil
            unused.append(chunk)
        }
    }
}
