import Bytes

/// What an operator did to a running hub, or wants to find again later: the log has it between the changes.
public struct OperatorMark: Sendable, Equatable {
    public enum Action: UInt8, Sendable, CaseIterable {
        /// Nothing was done: it is a place in the log with a text.
        case marked = 1
        /// The hub stopped to read from the database …
        case paused = 2
        /// … and was told to go on.
        case resumed = 3
        /// A segment was ended.
        case rotated = 4
        /// All rows that a table had were put into the log.
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
    /// Microseconds since 1970, UTC.
    public var time: Int64
    /// The operator's own words.
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

/// The stored form of marks, several in one entry:
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
        // No room is made for what is not there.
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
