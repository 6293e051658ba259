/// Facts from the index of a sealed segment. With them a reader decides if it can skip the segment.
public struct SealedSegment {
    /// Kinds of entries in the segment.
    public let kinds: EntryKinds
    private let outline: SegmentOutline

    init(_ map: SegmentMap, _ outline: SegmentOutline) {
        assert(outline.isWhole, "nothing comes behind what the index of a sealed segment describes")
        kinds = map.summary.kinds
        self.outline = outline
    }

    /// Payloads of the segment's schema entries. Every change in the segment has one of these schemas.
    public var relations: [[UInt8]] { outline.relations }

    /// True if the segment may have entries with this key.
    public func mayContain(_ key: UInt64) -> Bool { outline.filter.mayContain(key) }
}
