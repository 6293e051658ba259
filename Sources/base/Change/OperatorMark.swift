import Bytes

/// Action of an operator on a running hub, or a text that the operator wants to find again. The log stores it between
/// the changes.
public struct OperatorMark: Sendable, Equatable {
    public enum Action: UInt8, Sendable, CaseIterable {
        /// No action: the operator set a text as a mark at this position in the log.
        case marked = 1
        /// The hub stopped reading from the database.
        case paused = 2
        /// The operator told the hub to continue reading from the database.
        case resumed = 3
        /// The hub ended the current segment of the log.
        case rotated = 4
        /// The hub wrote all existing rows of a table to the log.
        case backfilled = 5

        public var name: String {
            switch self {
            case .marked: "marked"
            case .paused: "paused"
            case .resumed: "resumed"
            case .rotated: "rotated"
            case .backfilled: "backfilled"
            }
        }
    }

    public var action: Action
    /// Time of the action in microseconds since 1970, UTC.
    public var time: Int64
    /// Text that the operator gave.
    public var text: [UInt8]

    public init(_ action: Action, time: Int64, text: [UInt8] = []) {
        self.action = action
        self.time = time
        self.text = text
    }
}

extension OperatorMark: LogNote {
    public var byteCount: Int { OperatorMarkCodec.fixedBytes + text.count }
    public var isStorable: Bool { text.count <= Int(Int32.max) }
    public var keys: [UInt64] { [RowKey.marks] }

    public static func encode(_ marks: some Collection<OperatorMark>, to writer: inout ByteWriter) {
        OperatorMarkCodec.encode(marks, to: &writer)
    }
}

/// Stored form of operators' marks, several in one entry:
///
/// ```
/// entry = version u8 · number of marks u32 · mark*
/// mark  = action u8 · time i64 · length u32 · text
/// ```
public enum OperatorMarkCodec {
    private static let version: UInt8 = 1
    static let fixedBytes = 13

    public static func encode(_ marks: some Collection<OperatorMark>, to writer: inout ByteWriter) {
        writer.append(version)
        writer.append(little: UInt32(marks.count))
        for mark in marks {
            precondition(mark.isStorable, "a mark's text has a largest size")
            writer.append(mark.action.rawValue)
            writer.append(little: UInt64(bitPattern: mark.time))
            writer.append(little: UInt32(mark.text.count))
            writer.append(mark.text)
        }
    }

    public static func decode(_ bytes: RawSpan) throws(ByteError) -> [OperatorMark] {
        var reader = ByteReader(bytes)
        guard try reader.uint8() == version else { throw ByteError(expected: "marks of version 1", offset: 0) }
        let count = try reader.littleUInt32()
        // No capacity is reserved, because damaged bytes may contain a wrong count.
        var marks: [OperatorMark] = []
        for _ in 0..<count {
            guard let action = OperatorMark.Action(rawValue: try reader.uint8()) else {
                throw ByteError(expected: "what an operator does", offset: reader.offset - 1)
            }
            let time = Int64(bitPattern: try reader.littleUInt64())
            let text = try reader.span(Int(reader.littleUInt32())).copied()
            marks.append(OperatorMark(action, time: time, text: text))
        }
        try reader.expectEnd()
        return marks
    }
}
