/// What the index beside a sealed segment says of it, by which a reader may pass it over.
public struct SealedSegment {
    /// Which kinds of entries it has.
    public let kinds: EntryKinds
    private let outline: SegmentOutline

    init(_ map: SegmentMap, _ outline: SegmentOutline) {
        assert(outline.isWhole, "nothing comes behind what the index of a sealed segment describes")
        kinds = map.summary.kinds
        self.outline = outline
    }

    /// The payloads of its schema entries: every change in it is of one of those.
    public var relations: [[UInt8]] { outline.relations }

    /// Whether it may have this key.
    public func mayContain(_ key: UInt64) -> Bool { outline.filter.mayContain(key) }
}
