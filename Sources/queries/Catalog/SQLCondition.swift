/// Names that PostgreSQL gives its error codes (appendix A of its manual), limited to errors that a binding can cause.
enum SQLCondition {
    static func name(of sqlState: String) -> String { names[sqlState] ?? "unknown" }

    private static let names: [String: String] = [
        "0A000": "feature_not_supported",
        "08000": "connection_exception", "08003": "connection_does_not_exist", "08006": "connection_failure",
        "22000": "data_exception", "22001": "string_data_right_truncation",
        "22003": "numeric_value_out_of_range", "22007": "invalid_datetime_format",
        "22008": "datetime_field_overflow", "22009": "invalid_time_zone_displacement_value",
        "2200G": "most_specific_type_mismatch", "2200L": "not_an_xml_document", "2200M": "invalid_xml_document",
        "2200N": "invalid_xml_content", "2200S": "invalid_xml_comment", "2200T": "invalid_xml_processing_instruction",
        "22012": "division_by_zero", "22015": "interval_field_overflow",
        "22018": "invalid_character_value_for_cast", "22019": "invalid_escape_character",
        "2201B": "invalid_regular_expression", "22021": "character_not_in_repertoire",
        "22023": "invalid_parameter_value", "22025": "invalid_escape_sequence", "22026": "string_data_length_mismatch",
        "22030": "duplicate_json_object_key_value", "22032": "invalid_json_text",
        "2202E": "array_subscript_error", "22P01": "floating_point_exception",
        "22P02": "invalid_text_representation", "22P03": "invalid_binary_representation",
        "22P04": "bad_copy_file_format", "22P05": "untranslatable_character",
        "22P06": "nonstandard_use_of_escape_character",
        "23502": "not_null_violation", "23514": "check_violation",
        "25006": "read_only_sql_transaction", "2F002": "modifying_sql_data_not_permitted",
        "38000": "external_routine_exception", "39000": "external_routine_invocation_exception",
        "40001": "serialization_failure", "40P01": "deadlock_detected",
        "42501": "insufficient_privilege", "42601": "syntax_error", "42602": "invalid_name",
        "42622": "name_too_long", "42701": "duplicate_column", "42702": "ambiguous_column",
        "42703": "undefined_column", "42704": "undefined_object", "42725": "ambiguous_function",
        "42804": "datatype_mismatch", "42809": "wrong_object_type", "42846": "cannot_coerce",
        "42883": "undefined_function", "42939": "reserved_name", "42P01": "undefined_table",
        "42P02": "undefined_parameter", "42P17": "invalid_object_definition", "42P18": "indeterminate_datatype",
        "42P21": "collation_mismatch", "42P22": "indeterminate_collation",
        "53200": "out_of_memory", "54000": "program_limit_exceeded", "54001": "statement_too_complex",
        "55P03": "lock_not_available", "57014": "query_canceled", "57P01": "admin_shutdown",
        "P0001": "raise_exception", "XX000": "internal_error",
    ]
}
