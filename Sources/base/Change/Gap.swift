import Bytes

/// Changes were lost before they reached the log: why, and between which positions. The log says so in an entry of its
/// own and goes on in another epoch, so that nobody takes the two sides for one history.
public struct Gap: Sendable, Equatable {
    public enum Reason: String, Sendable, CaseIterable {
        case slotMissing = "slot_missing"
        case slotInvalidated = "slot_invalidated"
        case slotAdvanced = "slot_advanced"
        case databaseRestored = "database_restored"
        case otherDatabase = "other_database"
        case publicationRecreated = "publication_recreated"
        /// A slot is there that somebody has used, and the log that followed it is not.
        case logMissing = "log_missing"
        /// What the log followed is not known any more.
        case lineageDamaged = "lineage_damaged"
        /// An operator gave up a damaged part of the log.
        case logDamaged = "log_damaged"

        /// What follows may be of another database, or of an older state of this one: its oids mean what they mean there.
        public var mayChangeDatabase: Bool {
            switch self {
            case .databaseRestored, .otherDatabase, .logMissing, .lineageDamaged: true
            case .slotMissing, .slotInvalidated, .slotAdvanced, .publicationRecreated, .logDamaged:
                false
            }
        }
    }

    public var reason: Reason
    /// The log holds everything up to here …
    public var from: LSN
    /// … and goes on here.
    public var to: LSN

    public init(reason: Reason, from: LSN, to: LSN) {
        self.reason = reason
        self.from = from
        self.to = to
    }
}

/// The stored form of a gap: version u8 · from u64 · to u64 · reason.
public enum GapCodec {
    public static func encode(_ gap: Gap, to writer: inout ByteWriter) {
        writer.append(UInt8(1))
        writer.append(little: gap.from.rawValue)
        writer.append(little: gap.to.rawValue)
        writer.append(gap.reason.rawValue)
    }

    public static func decode(_ bytes: RawSpan) throws(ByteError) -> Gap {
        var reader = ByteReader(bytes)
        guard try reader.uint8() == 1 else { throw ByteError(expected: "a gap of version 1", offset: 0) }
        let from = LSN(try reader.littleUInt64())
        let to = LSN(try reader.littleUInt64())
        guard let reason = Gap.Reason(rawValue: reader.rest().text) else {
            throw ByteError(expected: "the reason of a gap", offset: 17)
        }
        return Gap(reason: reason, from: from, to: to)
    }
}
