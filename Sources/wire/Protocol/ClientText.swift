import Bytes

/// Code of a message for clients, which programs can compare: the field `code` of `system` messages. Later versions may
/// reword a message; its code stays the same.
public enum TextCode: String, Sendable, Hashable, CaseIterable {
    // MARK: Reasons why a binding gets no subscription

    case notPublished = "NotPublished"
    case publishedAsOther = "PublishedAsOther"
    case notATable = "NotATable"
    case noSuchTable = "NoSuchTable"
    case tooManyTables = "TooManyTables"
    case invalidBinding = "InvalidBinding"
    case invalidFilter = "InvalidFilter"
    case unknownRole = "UnknownRole"

    // MARK: Limits of a subscription

    case rowsRefused = "RowsRefused"
    case nothingReadable = "NothingReadable"
    case nobodyDecides = "NobodyDecides"
    case policyNotJudged = "PolicyNotJudged"
    case operationsNotPublished = "OperationsNotPublished"
    case rowsLeftOut = "RowsLeftOut"
    case columnsNotComputed = "ColumnsNotComputed"
    case deletesFromLog = "DeletesFromLog"
    case deletesHidden = "DeletesHidden"
    case movesFromLog = "MovesFromLog"
    case movesHidden = "MovesHidden"
    case setsUnknown = "SetsUnknown"
    case oldRowsFromLog = "OldRowsFromLog"
    case rowsAge = "RowsAge"
    case moreWarnings = "MoreWarnings"
    case unknownOption = "UnknownOption"
    case unknownEvent = "UnknownEvent"
    case suspectValue = "SuspectValue"

    // MARK: Events of a subscription

    case changesMissing = "ChangesMissing"
    case valuesMissing = "ValuesMissing"
    case filtersRest = "FiltersRest"
    case truncated = "Truncated"
    case setChanged = "SetChanged"
    case setComplete = "SetComplete"

    // MARK: Messages about a channel

    case messageDropped = "MessageDropped"
    case caughtUp = "CaughtUp"
    case snapshotComplete = "SnapshotComplete"
    case snapshotFailed = "SnapshotFailed"

    // MARK: Reasons why a channel ends

    case tokenRefused = "TokenRefused"
    case tokenExpired = "TokenExpired"
    case unauthorized = "Unauthorized"
    case rightsLost = "RightsLost"
    case rightsUnknown = "RightsUnknown"
    case cutOff = "CutOff"
    case blocked = "Blocked"
    case tooManyMessages = "TooManyMessages"
    case tooManyPresences = "TooManyPresenceMessages"
    case presenceTooLarge = "PresenceTooLarge"
    case notReady = "ReplicationNotReady"
}

/// Message for a client: a text for people, and a code for programs.
public struct ClientText: Sendable, Hashable {
    public let code: TextCode
    public var text: String

    public init(_ code: TextCode, _ text: String) {
        self.code = code
        self.text = text
    }
}

extension ClientText {
    /// Writes the code of an error's reason. A reason has the form `Code: text`. A few short reasons have no code;
    /// their words are joined to make one.
    static func appendCode(ofReason reason: RawSpan, to writer: inout ByteWriter) {
        var end = 0
        while end < reason.byteCount, isLetter(reason.byte(end)) { end += 1 }
        if end > 0, end < reason.byteCount, reason.byte(end) == UInt8(ascii: ":") {
            return writer.append(reason.extracting(first: end))
        }
        var begins = true
        for index in 0..<min(reason.byteCount, maximumCodeBytes) {
            let byte = reason.byte(index)
            if isLetter(byte) { writer.append(begins && byte >= 97 ? byte - 32 : byte) }
            begins = !isLetter(byte)
        }
    }

    private static let maximumCodeBytes = 64

    private static func isLetter(_ byte: UInt8) -> Bool { (65...90).contains(byte) || (97...122).contains(byte) }
}
